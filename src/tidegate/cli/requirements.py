"""Requirements of Tidegate, and which of them are installed."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_REQUIREMENT: Final = re.compile(r"^([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*)(?:;(.*))?$")
_EXTRA: Final = re.compile(r"extra == ['\"]([\w-]+)['\"]")
_NOT_OURS: Final = {"all", "dev"}
"""Extras that are made of others, or that a user never installs."""


@dataclass(frozen=True, slots=True)
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
