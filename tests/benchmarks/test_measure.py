"""Rounds of contenders: who runs when, and what an interruption leaves."""

import json
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import measure
from benchmarks.measure import Contender, due, interleaved

QUIET, LOUD = [10.0, 10.0], [10.0, 15.0]


def contender(name: str, counter: Path, rounds_max: int | None = None) -> Contender:
    """A program that notes in a file that it ran."""
    line = json.dumps({"system": name, "records_per_s": 1.0, "seconds": 1.0})
    program = f"open({str(counter)!r}, 'a').write({name!r}); print({line!r})"
    return Contender(name, (sys.executable, "-c", program), rounds_max)


def test_a_session_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(measure, "calibration_ms", lambda: 10.0)
    counter, kept = tmp_path / "counter", tmp_path / "build" / "kept.jsonl"
    both = [contender("a", counter), contender("b", counter, rounds_max=1)]
    whole = interleaved(both, 2, Console(quiet=True), kept)
    assert counter.read_text() == "aba"
    lines = kept.read_text().splitlines()
    kept.write_text("\n".join(lines[:2]) + "\n")
    assert interleaved(both, 2, Console(quiet=True), kept) == whole
    assert counter.read_text() == "abaa"


def test_rounds_beyond_those_asked_for_are_for_who_has_too_few_quiet_runs() -> None:
    few, enough, slow = (Contender(name, ()) for name in ("few", "enough", "slow"))
    slow = Contender("slow", (), rounds_max=1)
    quiet, loud = ({"calibration_ms": each} for each in (QUIET, LOUD))
    results = {"few": [quiet, loud], "enough": [quiet, quiet], "slow": [loud]}
    assert due([few, enough, slow], results, 2, 2) == [few, enough]
    assert due([few, enough, slow], results, 3, 2) == [few]
