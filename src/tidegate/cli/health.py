"""The checks of ``tidegate doctor``; each gives a finding."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from enum import Enum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate import __version__
from tidegate.config import checkpointing, execution, high_availability, rest, slots, state_backend
from tidegate.config.log import LEVEL_VARIABLE, LEVELS
from tidegate.config.metrics import reporter_settings, span_reporters
from tidegate.datastream.process.outside import CONFIGURATION_VARIABLE, RUNTIME_VARIABLE
from tidegate.errors import ConfigError, TidegateError
from tidegate.graph.runtime import load_runtime
from tidegate.loops.forms import VARIABLE as LOOPS_VARIABLE
from tidegate.loops.forms import choose
from tidegate.model.settings import (
    OpenTelemetrySettings,
    PrometheusPushSettings,
    PrometheusSettings,
)
from tidegate.storage import paths
from tidegate.storage.stores import Stores
from tidegate.transport.accepting import listening_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.config.configuration import Configuration

_VARIABLES: Final = (
    CONFIGURATION_VARIABLE,
    LEVEL_VARIABLE,
    LOOPS_VARIABLE,
    RUNTIME_VARIABLE,
    "SPARK_HOME",
    "PYSPARK_PYTHON",
)
_JAVA: Final = 17
_FILES_MIN: Final = 1_024
_GIB: Final = 1 << 30

_REQUIREMENT: Final = re.compile(r"^([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*)(?:;(.*))?$")
_EXTRA: Final = re.compile(r"extra == ['\"]([\w-]+)['\"]")
_NOT_OURS: Final = {"all", "dev"}
"""Extras that are made of others, or that a user never installs."""


class Verdict(Enum):
    """Severity of a finding of a check."""

    OK = "ok"
    ABSENT = "not installed"
    """Nothing that was asked for needs it."""
    DOUBTFUL = "warning"
    MISSING = "missing"
    """A job would not run."""


@frozen
class Finding:
    """Result of a check: the subject, its state, and a remedy ("" for none)."""

    about: str
    verdict: Verdict
    found: str
    remedy: str = ""


@frozen
class Requirement:
    """A package, the accepted versions, and the installed version (None: not installed)."""

    package: str
    versions: str
    installed: str | None

    @property
    def met(self) -> bool:
        if self.installed is None:
            return False
        here = _numbers(self.installed)
        bounds = (bound.strip() for bound in self.versions.split(",") if bound.strip())
        return all(_holds(here, bound) for bound in bounds)

    def __str__(self) -> str:
        if self.met:
            return f"{self.package} {self.installed}"
        if self.installed is None:
            return f"no {self.package}"
        return f"{self.package} {self.installed}, not {self.versions}"


def installed_version(package: str) -> str | None:
    """Version of a package that this Python finds; None if it finds none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def requirements(installed: Callable[[str], str | None]) -> dict[str, list[Requirement]]:
    """Required packages by extra; always required ones are under "".

    Empty where the source is used as it lies, without the metadata of an installed package.
    """
    try:
        lines = requires("tidegate") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, list[Requirement]] = {}
    for extra, package, versions in _parsed(lines):
        found.setdefault(extra, []).append(Requirement(package, versions, installed(package)))
    return found


def _parsed(lines: Iterable[str]) -> Iterable[tuple[str, str, str]]:
    for line in lines:
        match = _REQUIREMENT.match(line)
        assert match is not None, f"a requirement of ours that cannot be read: {line}"
        package, versions, marker = match[1], match[2].strip(), match[3] or ""
        extra = _EXTRA.search(marker)
        elsewhere = "sys_platform" in marker and sys.platform == "win32"
        if not elsewhere and (extra is None or extra[1] not in _NOT_OURS):
            yield "" if extra is None else extra[1], package, versions


def _holds(here: tuple[int, ...], bound: str) -> bool:
    if bound.startswith(">="):
        return here >= _numbers(bound[2:])
    if bound.startswith("=="):
        return here == _numbers(bound[2:])
    assert bound.startswith("<"), f"a bound of ours that cannot be read: {bound}"
    return here < _numbers(bound[1:])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])


def examine(
    settings: Configuration,
    runtime: str,
    *,
    installed: Callable[[str], str | None] = installed_version,
) -> list[Finding]:
    """All findings about this machine, for a job with these settings.

    runtime: where the job is to run; 'spark' needs Java and PySpark. installed: gives the version
    of a package, None for a package that is not there.
    """
    return [
        *_interpreter(),
        _runtime(runtime),
        *_packages(_needed_extras(settings, runtime), installed),
        _loops(settings),
        _java(needed=runtime == "spark"),
        *_variables(),
        *_limits(),
        _loopback(),
        *_ports(settings),
        *_folders(settings),
    ]


def _interpreter() -> Iterator[Finding]:
    here = f"{__version__} in {Path(__file__).resolve().parent.parent}"
    yield Finding("Tidegate", Verdict.OK, here)
    yield Finding("Python", Verdict.OK, f"{platform.python_version()}, {sys.executable}")
    system = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"
    if platform.system() in ("Linux", "Darwin"):
        yield Finding("system", Verdict.OK, system)
    else:
        remedy = "Use Linux or macOS: slots are forked, and nothing else has been tried."
        yield Finding("system", Verdict.DOUBTFUL, system, remedy)


def _needed_extras(settings: Configuration, runtime: str) -> set[str]:
    wanted = {
        "spark": runtime == "spark",
        "rocksdb": settings.get(state_backend.STATE_BACKEND) == "rocksdb",
        "rest": bool(settings.get(rest.REST_PORT) or settings.get(rest.REST_BIND_PORT)),
        "zookeeper": settings.get(high_availability.HIGH_AVAILABILITY) == "ZOOKEEPER",
    }
    targets = [each.target for each in reporter_settings(settings)]
    return {extra for extra, is_wanted in wanted.items() if is_wanted}.union(
        *map(_clients_of, [*targets, *span_reporters(settings)])
    )


def _clients_of(target: object) -> set[str]:
    """The extra with the client that a reporter of this kind reports with."""
    match target:
        case PrometheusSettings() | PrometheusPushSettings():
            return {"prometheus"}
        case OpenTelemetrySettings():
            return {"opentelemetry"}
        case _:
            return set()


def _runtime(name: str) -> Finding:
    try:
        load_runtime(name)
    except ConfigError as error:
        return Finding("runtime", Verdict.MISSING, error.what, error.remedy)
    return Finding("runtime", Verdict.OK, name)


def _packages(needed: set[str], installed: Callable[[str], str | None]) -> Iterator[Finding]:
    for extra, packages in requirements(installed).items():
        unmet = [each for each in packages if not each.met]
        about = f"extra '{extra}'" if extra else "packages"
        install = f"pip install 'tidegate[{extra}]'" if extra else "pip install tidegate"
        if not unmet:
            found = ", ".join(map(str, packages)) if extra else f"all {len(packages)} are installed"
            yield Finding(about, Verdict.OK, found)
        else:
            wrong = any(each.installed is not None for each in unmet)
            absent = Verdict.DOUBTFUL if wrong else Verdict.ABSENT
            verdict = Verdict.MISSING if not extra or extra in needed else absent
            yield Finding(about, verdict, ", ".join(map(str, unmet)), install)


def _loops(settings: Configuration) -> Finding:
    try:
        choice = choose(settings.get(execution.LOOPS))
    except TidegateError as error:
        return Finding("loops", Verdict.MISSING, error.what, error.remedy)
    return Finding("loops", Verdict.OK, f"{choice.form.value}: {choice.why}")


def _java(*, needed: bool) -> Finding:
    lacking = Verdict.MISSING if needed else Verdict.ABSENT
    remedy = f"Install Java {_JAVA} or newer, or set JAVA_HOME; only jobs on Spark need it."
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if java is None:
        return Finding("Java", lacking, f"none in {home}" if home else "none on the PATH", remedy)
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", lacking, f"{java} does not run: {error}", remedy)
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', run.stderr)
    if version is None:
        return Finding("Java", lacking, f"{java} does not tell its version", remedy)
    verdict = Verdict.OK if int(version[1]) >= _JAVA else lacking
    found = f"{version[0].removeprefix('version ').strip(chr(34))}, {java}"
    return Finding("Java", verdict, found, "" if verdict is Verdict.OK else remedy)


def _variables() -> Iterator[Finding]:
    for name in _VARIABLES:
        if name not in os.environ:
            continue
        value = os.environ[name]
        if name == LEVEL_VARIABLE and value.lower() not in LEVELS:
            remedy = f"Use one of: {', '.join(LEVELS)}."
            yield Finding(name, Verdict.MISSING, f"{value}, which is not a level", remedy)
        else:
            yield Finding(name, Verdict.OK, value)


def _limits() -> Iterator[Finding]:
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = " of at most ".join(
        "unlimited" if each == resource.RLIM_INFINITY else f"{each:,}" for each in (soft, hard)
    )
    enough = hard == resource.RLIM_INFINITY or hard >= _FILES_MIN
    remedy = f"Raise the limit to {_FILES_MIN:,} or more: ulimit -Hn, or LimitNOFILE of systemd."
    yield Finding(
        "open files", Verdict.OK if enough else Verdict.DOUBTFUL, found, "" if enough else remedy
    )


def _loopback() -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        remedy = "Allow connections of this machine to itself: driver and slots talk by them."
        return Finding("loopback", Verdict.MISSING, str(error), remedy)
    return Finding("loopback", Verdict.OK, "127.0.0.1 takes connections")


def _ports(settings: Configuration) -> Iterator[Finding]:
    address = settings.get(rest.REST_BIND_ADDRESS)
    asked = {
        slots.PORT_RANGE.key: (settings.get(slots.PORT_RANGE), ""),
        rest.REST_PORT.key: (settings.get(rest.REST_PORT), address),
        rest.REST_BIND_PORT.key: (settings.get(rest.REST_BIND_PORT), address),
    }
    for key, (ports, host) in asked.items():
        if ports is None or ports == (0, 0):
            continue
        first, last = ports
        free = sum(_is_free(host, port) for port in range(first, last + 1))
        found = f"{free} of {last - first + 1} are free"
        if free:
            yield Finding(key, Verdict.OK, found)
        else:
            yield Finding(key, Verdict.MISSING, found, f"Set {key} to ports that nobody uses.")


def _is_free(host: str, port: int) -> bool:
    try:
        listening_at(host, port).close()
    except OSError:
        return False
    return True


def _folders(settings: Configuration) -> Iterator[Finding]:
    yield _folder("temporary files", tempfile.gettempdir())
    for option in (checkpointing.CHECKPOINT_DIRECTORY, checkpointing.SAVEPOINT_DIRECTORY):
        place = settings.get(option)
        if place is None:
            continue
        location = paths.absolute(place)
        found = _folder(option.key, location) if paths.is_local(location) else _remote(location)
        yield replace(found, about=option.key)


def _folder(about: str, place: str) -> Finding:
    """Finding about a folder of this machine; a missing one is created when a job needs it."""
    folder = Path(place)
    # What lies in a folder that may not be entered is as if it were not there.
    there = next(each for each in (folder, *folder.parents) if os.access(each, os.F_OK))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        remedy = f"Name another folder, or let this user write to {there}."
        return Finding(about, Verdict.MISSING, f"{folder} cannot be written to", remedy)
    free = shutil.disk_usage(there).free
    found = f"{folder}, {free / _GIB:,.1f} GiB free"
    if free < _GIB:
        return Finding(about, Verdict.DOUBTFUL, found, "Make room there.")
    return Finding(about, Verdict.OK, found)


def _remote(location: str) -> Finding:
    try:
        Stores().open(location).is_folder("")
    except TidegateError as error:
        return Finding(location, Verdict.MISSING, error.what, error.remedy)
    return Finding(location, Verdict.OK, f"{location} answers")
