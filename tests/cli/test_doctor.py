"""`tidegate doctor`: what is there, what is missing, and what to do about it."""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.rest.world import EMPTY
from tidegate.cli.health import Finding, Requirement, Verdict, examine
from tidegate.cli.main import commands
from tidegate.config.configuration import Configuration
from tidegate.jobmaster.view import JobView, SlotView
from tidegate.model.control import LongCall
from tidegate.model.ids import SlotId
from tidegate.telemetry.picture import picture


def doctor(*args: object) -> Result:
    return CliRunner().invoke(commands, ["doctor", *map(str, args)])


def found(runtime: str = "local", **settings: str) -> dict[str, Finding]:
    """What is found where nothing but what Tidegate needs in any case is installed."""
    configuration = Configuration.from_dict(
        {key.replace("_", "."): value for key, value in settings.items()}
    )
    light = {"click", "cloudpickle"}
    findings = examine(
        configuration, runtime, installed=lambda package: "999.0" if package in light else None
    )
    return {finding.about: finding for finding in findings}


def java(folder: Path, version: str) -> str:
    """A JAVA_HOME whose java says that it is of this version."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return str(folder)


def test_where_all_is_there_it_ends_well() -> None:
    result = doctor()
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("everything a job needs is installed\n")


def test_the_findings_come_as_json_too() -> None:
    told = {each["about"]: each for each in json.loads(doctor("--json").stdout)}
    assert told["Python"]["verdict"] == "ok"
    assert set(told["loopback"]) == {"about", "verdict", "found", "remedy"}


def test_what_a_job_needs_and_is_missing_makes_it_end_with_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = doctor("-D", f"execution.checkpointing.dir={tmp_path}/file/ck")
    assert result.exit_code == 1
    assert "file/ck cannot be written to" in result.stdout
    assert "let this user write to" in result.stdout.partition("what to do:")[2]
    assert result.stdout.endswith("1 requirement missing\n")


def test_a_folder_below_one_that_may_not_be_entered_is_missing(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    result = doctor("-D", f"execution.checkpointing.dir={closed}/ck")
    may_enter = os.geteuid() == 0
    assert result.exit_code == (0 if may_enter else 1)
    assert ("ck cannot be written to" in result.stdout) is not may_enter


def test_an_extra_is_missing_only_where_the_job_uses_it() -> None:
    assert found()["extra 'rocksdb'"].verdict is Verdict.ABSENT
    lacking = found(state_backend_type="rocksdb")["extra 'rocksdb'"]
    assert (lacking.verdict, lacking.remedy) == (
        Verdict.MISSING,
        "pip install 'tidegate[rocksdb]'",
    )
    assert found(runtime="spark")["extra 'spark'"].verdict is Verdict.MISSING


@pytest.mark.parametrize(
    ("key", "kind", "extra"),
    [
        ("metrics.reporter.mine.factory.class", "prometheus", "prometheus"),
        ("metrics.reporter.mine.factory.class", "opentelemetry", "opentelemetry"),
        ("traces.reporter.mine.factory.class", "opentelemetry", "opentelemetry"),
    ],
)
def test_the_client_of_a_reporter_is_missing_where_the_job_reports(
    key: str, kind: str, extra: str
) -> None:
    prefix = key.removesuffix("factory.class")
    more = {} if kind == "prometheus" else {f"{prefix}exporter.endpoint": "http://localhost:1"}
    told = found(**{key: kind, **more})
    assert told[f"extra '{extra}'"].verdict is Verdict.MISSING
    assert found()[f"extra '{extra}'"].verdict is Verdict.ABSENT


def test_a_runtime_that_nobody_supplies_is_missing() -> None:
    result = doctor("--runtime", "nope")
    assert result.exit_code == 1 and "'nope'" in result.stdout
    assert found()["runtime"] == Finding("runtime", Verdict.OK, "local")


def test_a_package_that_every_job_needs_is_missing_in_any_case() -> None:
    packages = found()["packages"]
    assert packages.verdict is Verdict.MISSING
    assert "no pyarrow" in packages.found and "click" not in packages.found


@pytest.mark.parametrize(
    ("installed", "said"),
    [("2.2.1", "pandas 2.2.1"), ("3.0", "pandas 3.0, not >=2.2,<3"), (None, "no pandas")],
)
def test_a_package_is_told_with_its_version_and_the_ones_that_will_do(
    installed: str | None, said: str
) -> None:
    requirement = Requirement("pandas", ">=2.2,<3", installed)
    assert (str(requirement), requirement.met) == (said, installed == "2.2.1")


@pytest.mark.parametrize(
    ("version", "runtime", "verdict"),
    [
        ("17.0.9", "spark", Verdict.OK),
        ("1.8.0_392", "spark", Verdict.MISSING),
        ("1.8.0_392", "local", Verdict.ABSENT),
    ],
)
def test_java_has_to_be_new_enough_for_spark(
    version: str, runtime: str, verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, version))
    finding = found(runtime)["Java"]
    assert finding.verdict is verdict and finding.found.startswith(f"{version}, {tmp_path}")


def test_no_java_is_told_with_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert found("spark")["Java"].found == f"none in {tmp_path}"


def test_ports_that_are_all_taken_are_missing() -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        finding = found(rest_port=str(port))["rest.port"]
    assert (finding.verdict, finding.found) == (Verdict.MISSING, "0 of 1 are free")


def test_a_log_level_that_would_stop_every_job_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_LOG_LEVEL", "loud")
    assert found()["TIDEGATE_LOG_LEVEL"].verdict is Verdict.MISSING


class Asked:
    """Stands for the folder of a job whose picture is given."""

    def __init__(self, view: JobView) -> None:
        self._view = view

    def ask(self, job: str, request: object) -> object:
        assert (job, request) == ("orders", {"do": "picture"})
        return picture(self._view, 2_000, since=0)


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_wrong_with_a_job_is_told(as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    call = LongCall("look_up, line 4", "")
    slot = SlotView(SlotId("one"), "host", 1, 5, 12_000, call, "enrich (1/2)")
    for view, told in ((replace(EMPTY, slots=(slot,)), True), (EMPTY, False)):
        asked = Asked(view)
        monkeypatch.setattr("tidegate.cli.doctor.folder_of", lambda *given, asked=asked: asked)
        ran = doctor("orders", *(["--json"] if as_json else []))
        assert ran.exit_code == int(told)
        assert ("look_up, line 4" in ran.output) == told
        assert ("Nothing is slow or in trouble" in ran.output) == (not told and not as_json)
