"""Steps that fail in a job, and again from the bundle that it leaves."""

from __future__ import annotations

import asyncio
import io
import zipfile
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.e2e.replayed import BAD, STEPS, MendedSums, Sums, checked, parity, timed
from tests.testing.bundles import failed_as, failed_step, run_to_failure
from tests.worlds.subtask import ScriptedSource
from tidegate import (
    AsyncDataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    Types,
    WatermarkStrategy,
)
from tidegate.api import ship
from tidegate.errors import FormatError, UserCodeFailed, UserError
from tidegate.model.replay import FACTS, STEP, StepToReplay
from tidegate.state import ValueStateDescriptor
from tidegate.testing import ReplayBundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

pytestmark = pytest.mark.feature("F300")


@pytest.mark.parametrize("name", STEPS)
def test_each_kind_of_step_fails_again_from_its_bundle(tmp_path: Path, name: str) -> None:
    bundle = ReplayBundle.read(failed_as(name, tmp_path))
    error = bundle.run().error
    assert isinstance(error, UserCodeFailed)
    facts = bundle.facts
    if "timer" in name:
        assert "ValueError: timer" in error.what
        assert facts["timer_ms"] is not None and facts["key"] == "1" and facts["row"] is None
    else:
        assert f"ValueError: {BAD} is bad" in error.what
        assert facts["row"] == str(BAD) and str(BAD) in facts["last_inputs"]
    assert (facts["operator"], facts["uid"], facts["subtask"]) == ("step", "step", 0)


def test_a_mended_step_goes_on_from_the_state_of_its_key(tmp_path: Path) -> None:
    bundle = ReplayBundle.read(failed_as("keyed", tmp_path))
    assert bundle.facts["key"] == "1" and bundle.facts["state"] == {"sum": ["9"]}
    mended = bundle.run(lambda numbers: numbers.key_by(parity).process(MendedSums()))
    assert (mended.error, mended.results, mended.waits) == (None, [((1, 9), None)], False)
    again = bundle.run(lambda numbers: numbers.key_by(parity).process(Sums()))
    assert again.error is not None and again.results == []


class First(KeyedCoProcessFunction[int, int, int]):
    """Checks the numbers of its first input, or sets timers for them that fail."""

    def __init__(self, check: Callable[[int], int], *, by_timer: bool = False) -> None:
        self._check, self._by_timer = check, by_timer

    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterable[int]:
        if self._by_timer:
            ctx.timer_service().register_processing_time_timer(value)
        else:
            yield self._check(value)

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterable[int]:
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[int]:
        yield self._check(timestamp)


def first_of(function: First) -> Callable[..., Any]:
    return lambda one, other: one.connect(other).key_by(parity, parity).process(function)


@pytest.mark.parametrize("by_timer", [False, True], ids=["row", "timer"])
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "older"])
def test_a_step_of_two_inputs_that_failed_on_its_first_can_be_made_anew(
    tmp_path: Path, by_timer: bool, counted: bool
) -> None:
    path = failed_step(
        tmp_path,
        lambda env: first_of(First(checked, by_timer=by_timer))(
            env.generate(int, None, 1_000), env.generate(int, None, 1_000)
        ),
    )
    bundle = ReplayBundle.read(path if counted else without_inputs(path))
    assert "ValueError: 7 is bad" in str(bundle.run().error)
    if counted:
        done = bundle.run(first_of(First(int, by_timer=by_timer)))
        assert done.error is None
        assert BAD in [value for value, _ in done.results]


class Older:
    """A step as it was kept when its inputs were not counted."""

    def __init__(self, step: StepToReplay) -> None:
        self._state = [getattr(step, each.name) for each in fields(step)][:-1]

    def __reduce__(self) -> tuple[object, ...]:
        return object.__new__, (StepToReplay,), self._state


def without_inputs(bundle: Path) -> Path:
    older = bundle.with_name("older")
    with zipfile.ZipFile(bundle) as read, zipfile.ZipFile(older, "w") as written:
        for name in read.namelist():
            content = read.read(name)
            if name == STEP:
                step = ship.loads(content, name="")
                assert isinstance(step, StepToReplay)
                content = ship.dumps(Older(step), name="")
            written.writestr(name, content)
    return older


async def never(number: int) -> int:
    await asyncio.get_running_loop().create_future()
    return number


async def tenfold(number: int) -> int:
    await asyncio.sleep(0)
    return number * 10


def test_a_mended_step_with_calls_gives_their_results(tmp_path: Path) -> None:
    bundle = ReplayBundle.read(failed_as("async", tmp_path))
    done = bundle.run(lambda s: AsyncDataStream.unordered_wait(s, tenfold, 20_000))
    assert (done.error, done.results, done.waits) == (None, [(10 * BAD, None)], False)


class Unclosed(MapFunction[int, int]):
    def map(self, value: int) -> int:
        return -value

    def close(self) -> None:
        raise OSError("no service")


def test_a_close_that_fails_does_not_hide_the_results(tmp_path: Path) -> None:
    bundle = ReplayBundle.read(failed_as("map", tmp_path))
    done = bundle.run(lambda numbers: numbers.map(Unclosed()))
    assert (done.error, done.results) == (None, [(-BAD, None)])


def test_a_step_that_waits_for_something_outside_is_not_waited_for(tmp_path: Path) -> None:
    bundle = ReplayBundle.read(failed_as("async", tmp_path))
    done = bundle.run(lambda s: AsyncDataStream.unordered_wait(s, never, 20_000))
    assert (done.error, done.results, done.waits) == (None, [], True)


class Late(KeyedProcessFunction[int, int]):
    """Gives the watermark with each number."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[int]:
        yield ctx.timer_service().current_watermark()


def test_event_time_stands_where_it_stood(tmp_path: Path) -> None:
    def program(env: Any) -> Any:
        numbers = env.generate(int, None, 200).map(int)  # each in a batch of its own
        return timed(numbers).key_by(parity).process(Sums())

    bundle = ReplayBundle.read(
        failed_step(tmp_path, program, **{"pipeline.auto-watermark-interval": "1 ms"})
    )
    facts = bundle.facts
    assert facts["timestamp_ms"] == BAD
    done = bundle.run(lambda numbers: numbers.key_by(parity).process(Late()))
    assert done.error is None
    shown = facts["watermark_ms"] if facts["watermark_ms"] is not None else -(1 << 63)
    assert done.results == [(shown, BAD)]


class FailsAt300(KeyedProcessFunction[int, int]):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[int]:
        assert ctx.timestamp() != 300, "the thirtieth of them"
        yield value


def time_of(row: tuple[int, int], _: int) -> int:
    return row[1]


def number_of(row: tuple[int, int]) -> int:
    return row[0]


def test_of_equal_rows_the_one_is_found_at_whose_time_the_function_failed(tmp_path: Path) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(time_of)

    def program(env: Any) -> Any:
        rows = env.from_collection([(3, 10 * n) for n in range(100)])
        numbers = rows.assign_timestamps_and_watermarks(strategy).map(number_of)
        return numbers.key_by(parity).process(FailsAt300())

    bundle = ReplayBundle.read(failed_step(tmp_path, program))
    assert (bundle.facts["row"], bundle.facts["timestamp_ms"]) == ("3", 300)
    assert "the thirtieth of them" in str(bundle.run().error)


class Unopened(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        raise OSError("no service")

    def map(self, value: Any) -> Any:
        return value


def test_a_step_that_was_given_no_row_shows_its_error_and_is_not_run(tmp_path: Path) -> None:
    path = failed_step(tmp_path, lambda env: env.from_sequence(1, 9).map(Unopened()))
    bundle = ReplayBundle.read(path)
    assert (bundle.facts["call"], bundle.facts["rows"]) == ("open", 0)
    assert "OSError: no service" in bundle.facts["error"] and bundle.facts["key"] is None
    with pytest.raises(UserError, match="failed in its open, where it was given no row"):
        bundle.run()


def test_a_source_is_not_read_again(tmp_path: Path) -> None:
    bundle = ReplayBundle.read(failed_as("map", tmp_path))
    with pytest.raises(UserError, match="a source reads from outside"):
        bundle.run_operator(ScriptedSource("source", [], ["a"]))


def numbers_table() -> pa.Table:
    return pa.table({"user": ["a", "b", "a"], "amount": [1, 2, 0]})


def inverse(row: dict[str, Any]) -> float:
    return 6 / int(row["amount"])


def inverses(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = [6 / amount for amount in batch.column("amount").to_pylist()]
    return pa.RecordBatch.from_pydict({"inverse": values})


def test_the_row_is_found_in_columns_that_a_function_of_rows_was_given(tmp_path: Path) -> None:
    def program(env: Any) -> Any:
        return env.from_arrow(numbers_table()).key_by("user").map(inverse)

    bundle = ReplayBundle.read(failed_step(tmp_path, program))
    assert bundle.facts["rows"] == 1
    assert bundle.facts["row"] == "{'user': 'a', 'amount': 0}"
    assert "ZeroDivisionError" in str(bundle.run().error)


def amounts(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["amount"])


def test_a_function_of_columns_is_given_its_whole_batch_again(tmp_path: Path) -> None:
    path = failed_step(tmp_path, lambda env: env.from_arrow(numbers_table()).map_batches(inverses))
    bundle = ReplayBundle.read(path)
    assert bundle.facts["last_inputs"][0] == "{'user': 'a', 'amount': 0}"
    assert "ZeroDivisionError" in str(bundle.run().error)
    mended = bundle.run(lambda batches: batches.map_batches(amounts))
    assert len(mended.results) == bundle.facts["rows"]
    assert mended.results[-1] == ({"amount": 0}, None)


class Long(KeyedProcessFunction[str, str]):
    """Keeps long texts; an empty one has no first letter."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.STRING()))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        first = value[0]
        self._kept.update(self._kept.value() or value * 30_000)
        yield first


def first_letter(text: str) -> str:
    return text[0]


def same(text: str) -> str:
    return "all"


def test_state_that_does_not_fit_is_left_out_and_the_step_runs_without(tmp_path: Path) -> None:
    path = failed_step(
        tmp_path,
        lambda env: env.from_collection(["x", "y", ""]).key_by(same).process(Long()),
        **{"tidegate.replay.max-size": "20 kb"},
    )
    assert path.stat().st_size < 20_000
    bundle = ReplayBundle.read(path)
    [left_out] = bundle.facts["left_out"]
    assert left_out.startswith("state of 3") and left_out.endswith("bytes")
    assert bundle.facts["key"] == "'all'" and "IndexError" in str(bundle.run().error)


def test_earlier_inputs_are_left_out_once_the_file_is_full(tmp_path: Path) -> None:
    rows = ["x" * 900] * 100
    path = failed_step(
        tmp_path,
        lambda env: env.from_collection([*rows, ""]).map(first_letter),
        **{"tidegate.replay.max-size": "20 kb"},
    )
    facts = ReplayBundle.read(path).facts
    assert facts["left_out"] == ["earlier inputs"] and facts["row"] == "''"
    assert 5 < len(facts["last_inputs"]) < 30


def test_no_more_of_the_last_inputs_are_kept_than_asked_for(tmp_path: Path) -> None:
    path = failed_step(
        tmp_path,
        lambda env: env.from_collection([*"abcdefgh", ""]).map(first_letter),
        **{"tidegate.replay.last-inputs": "3"},
    )
    facts = ReplayBundle.read(path).facts
    assert facts["last_inputs"] == ["''", "'h'", "'g'"] and facts["left_out"] == []


def halved(number: int) -> float:
    return 6 / (3 - number)


def test_a_source_that_fails_leaves_no_bundle(tmp_path: Path) -> None:
    folder = tmp_path / "bundles"
    run_to_failure(folder, lambda env: env.generate(halved, None, 1_000))
    assert not folder.exists()


def test_a_bundle_that_cannot_be_made_is_told_and_the_job_fails_as_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bundles"
    run_to_failure(
        folder,
        lambda env: env.from_sequence(1, 9).map(halved),
        **{"tidegate.replay.max-size": "1 kb"},
    )
    told = capsys.readouterr().err
    assert "a replay bundle cannot be made" in told and "larger than a bundle may be" in told
    assert not folder.exists()


def whole(facts: bytes = b'{"format": 1}', **info: Any) -> bytes:
    """A file like a bundle. info: attributes of the entry with its facts."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr(FACTS, facts)
        bundle.writestr(STEP, b"step" * 1_000)
        for name, value in info.items():
            setattr(bundle.infolist()[0], name, value)
    return file.getvalue()


def damaged_within() -> bytes:
    """Compressed bytes that are none."""
    content = whole()
    at = content.rindex(STEP.encode(), 0, content.rindex(b"PK\x01\x02")) + len(STEP)
    return content[:at] + b"\xff" * 8 + content[at + 8 :]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no zip file",
        whole()[:-30],
        whole(b"no JSON"),
        whole(b"[" * 100_000),
        whole(b"[1, 2]"),
        whole(compress_type=99),
        whole(flag_bits=1),
        damaged_within(),
    ],
    ids=[
        "empty",
        "something else",
        "cut off",
        "facts that are no JSON",
        "facts that nest too deeply",
        "facts that are no object",
        "an unknown compression",
        "encrypted",
        "compressed bytes that are none",
    ],
)
def test_a_damaged_bundle_is_told_as_that(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.replay"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="This is no replay bundle") as told:
        ReplayBundle.read(path)
    assert told.value.where == str(path) and told.value.remedy


def test_a_bundle_that_is_not_there_or_of_somebody_else_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="There is no file"):
        ReplayBundle.read(tmp_path / "gone.replay")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(zipfile, "ZipFile", refused)  # root may read all files
    with pytest.raises(UserError, match="may not be read") as told:
        ReplayBundle.read(tmp_path / "private.replay")
    assert "for the user alone" in told.value.remedy
