"""Part files: hidden, then committed, exactly once whatever is killed; and what rows they take."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.files import visible_files
from tests.operators.source_job import SourceJob
from tests.operators.world import Hosted, World, arrow
from tests.properties import examples
from tidegate.api.operator import Polled
from tidegate.api.rows.column_rows import RowForm
from tidegate.connectors import Encoder
from tidegate.connectors.files import writers
from tidegate.connectors.files.file_sink import FileSink
from tidegate.connectors.files.file_source import FileSource
from tidegate.connectors.files.parts import PartCommittable, PartCommitter, PartNames, hidden
from tidegate.errors import BadRecord, CommitFailed, ConfigError, FormatError
from tidegate.model.ids import CheckpointId, JobId
from tidegate.operators.map import FilterOperator, MapOperator
from tidegate.operators.sinks.sink import SinkOperator
from tidegate.operators.sources.source import SourceReaderOperator
from tidegate.typeinfo.types import TypeInformation, Types


def in_progress(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".*.inprogress"))


def numbers(folder: Path) -> list[int]:
    """What a reader of finished files sees."""
    found: list[int] = []
    for path in visible_files(folder):
        if path.suffix == ".parquet":
            found += pq.read_table(path).column("n").to_pylist()
        elif path.suffix == ".csv":
            found += [int(row["n"]) for row in csv.DictReader(path.read_text().splitlines())]
        else:
            found += [json.loads(line)["n"] for line in path.read_text().splitlines()]
    return sorted(found)


class JsonLines(Encoder):
    def encode(self, value: object) -> bytes:
        return json.dumps(value).encode() + b"\n"


SINKS: dict[str, Callable[[str], FileSink]] = {
    "parquet": FileSink.parquet,
    "csv": FileSink.csv,
    "json": FileSink.json,
    "an encoder, in folders": lambda path: FileSink.for_row_format(path, JsonLines()).build(),
}


@pytest.fixture(params=SINKS)
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> FileSink:
    return SINKS[request.param](str(tmp_path / "out"))


@pytest.mark.feature("F211", "F287")
def test_rows_appear_only_when_their_checkpoint_is_complete(
    world: World, sink: FileSink, tmp_path: Path
) -> None:
    step = Hosted(SinkOperator(sink), world)
    step.rows({"n": 1}, {"n": 2})
    step.snapshot(1)
    step.rows({"n": 3})
    assert visible_files(tmp_path / "out") == []
    assert len(in_progress(tmp_path / "out")) == 1
    step.complete(1)
    assert numbers(tmp_path / "out") == [1, 2]


def all_but_size(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], "name": row["name"], "mark": row["mark"]}


@pytest.mark.parametrize(
    "kept_by",
    [
        lambda row: row["n"] > 1,
        lambda row: row["name"] != "a",
        lambda row: row["mark"],
        lambda row: row["mark"] is not None,
    ],
)
def test_rows_of_a_file_are_filtered_and_written_without_being_made(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept_by: Callable[[dict[str, Any]], object],
) -> None:
    monkeypatch.setattr(RowForm, "rows", lambda *_: pytest.fail("rows were made"))
    read = pa.table(
        {
            "n": pa.array([1, 2, 3], pa.int32()),
            "name": ["a", None, "c"],
            "mark": [None, True, True],
            "size": [1.5, 2.5, None],
        }
    )
    pq.write_table(read, tmp_path / "in.parquet")
    source = FileSource.parquet(str(tmp_path / "in.parquet"))
    job = SourceJob(world, lambda: SourceReaderOperator(source, None, "files"), 1)
    reader = job.readers[0]
    while not reader.out.batches:
        assert reader.poll() is not Polled.END
        world.settle()
        job.deliver()
    chosen = Hosted(MapOperator(all_but_size), world)
    chosen.process(reader.out.batches[0])
    kept = Hosted(FilterOperator(kept_by), world)
    kept.process(chosen.out.batches[0])
    for make in (FileSink.parquet, FileSink.csv):
        sink = Hosted(SinkOperator(make(str(tmp_path / "out"))), world)
        sink.process(kept.out.batches[0])
        sink.snapshot(1)
        sink.complete(1)
    assert numbers(tmp_path / "out") == [2, 2, 3, 3]
    written = pq.read_table(next((tmp_path / "out").glob("*.parquet")))
    assert written.to_pylist() == read.slice(1).drop_columns("size").to_pylist()


def test_the_acknowledgement_waits_until_the_part_is_durable(
    world: World, sink: FileSink, tmp_path: Path
) -> None:
    step = Hosted(SinkOperator(sink), world)
    step.rows({"n": 1})
    cut = step.cut(1)
    assert cut.durable is not None
    assert in_progress(tmp_path / "out") == []
    world.wait_for(cut.durable)
    assert len(in_progress(tmp_path / "out")) == 1


def test_a_checkpoint_without_rows_has_no_part(
    world: World, sink: FileSink, tmp_path: Path
) -> None:
    step = Hosted(SinkOperator(sink), world)
    assert step.snapshot(1).lists == [{"SinkCommittables": [], "SinkWriterState": []}]
    step.complete(1)
    assert visible_files(tmp_path / "out") == []


def test_the_last_part_is_committed_with_the_final_checkpoint(
    world: World, sink: FileSink, tmp_path: Path
) -> None:
    step = Hosted(SinkOperator(sink), world)
    step.rows({"n": 1})
    step.finish()
    assert visible_files(tmp_path / "out") == []
    step.snapshot(1)
    step.complete(1)
    step.operator.close()
    assert numbers(tmp_path / "out") == [1]


def test_without_checkpoints_all_is_committed_at_the_end(
    world: World, sink: FileSink, tmp_path: Path
) -> None:
    step = Hosted(SinkOperator(sink), world, checkpointing=False)
    step.rows({"n": 1})
    assert visible_files(tmp_path / "out") == []
    step.finish()
    assert numbers(tmp_path / "out") == [1]


def test_a_part_ends_at_about_its_size(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "GROUP_ROWS", 10)
    sink = FileSink(str(tmp_path), SINKS["parquet"]("x").encoding, part_bytes=200)
    step = Hosted(SinkOperator(sink), world)
    for n in range(50):
        step.rows({"n": n})
    step.snapshot(1)
    step.complete(1)
    assert len(visible_files(tmp_path)) == 2
    assert numbers(tmp_path) == list(range(50))


@pytest.mark.parametrize("kind", SINKS)
def test_a_part_may_be_smaller_than_a_group_of_rows(
    world: World, tmp_path: Path, kind: str
) -> None:
    step = Hosted(SinkOperator(replace(SINKS[kind](str(tmp_path)), part_bytes=100)), world)
    for n in range(60):
        step.rows({"n": n})
    step.snapshot(1)
    step.complete(1)
    assert 3 <= len(visible_files(tmp_path)) <= 10
    assert numbers(tmp_path) == list(range(60))


def test_a_writer_that_is_ahead_of_the_disk_takes_no_more(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "GROUP_ROWS", 1)
    operator = SinkOperator(FileSink.parquet(str(tmp_path)))
    step = Hosted(operator, world)

    def waits(n: int) -> bool:
        from tidegate.model.elements import RowBatch

        steps = world.on_loop(lambda: operator.process(RowBatch([{"n": n}]), 0, step.out))
        return steps is not None

    assert not waits(1)
    assert waits(2)
    world.settle()
    assert not waits(3)
    world.settle()
    operator.close()


def test_parts_of_two_attempts_and_two_subtasks_never_share_a_name() -> None:
    job = JobId("0" * 32)
    attempts = ["aa-1-0-0", "aa-1-1-0", "aa-2-0-0", "aa-1-0-1", "bb-1-0-0"]
    names = {PartNames("part", job, attempt, ".csv").part(1) for attempt in attempts}
    assert len(names) == len(attempts)


def test_an_attempt_sweeps_what_earlier_ones_of_its_subtask_left_behind() -> None:
    job = JobId("0" * 32)
    mine = PartNames("part", job, "aa-2-3-0", ".csv")
    dead = ["aa-1-9-0", "aa-2-2-0", "aa-1-0-5", "aa-2-3-5"]
    alive = ["aa-2-3-0", "aa-2-4-0", "aa-2-2-1", "bb-1-0-0"]
    names = [hidden(PartNames("part", job, a, ".csv").part(7)) for a in dead + alive]
    other_job = hidden(PartNames("part", JobId("1" * 32), "aa-1-0-0", ".csv").part(7))
    assert list(mine.left_behind([*names, other_job, "x"], 2)) == names[: len(dead)]


def test_all_that_a_job_has_hidden_is_deleted_once_it_is_over(
    sink: FileSink, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (out / "bucket").mkdir(parents=True)
    mine, other = (PartNames("part", JobId(digit * 32), "aa-1-0-0", ".parquet") for digit in "01")
    kept = [mine.part(1), hidden(other.part(1)), ".part-of-another-kind.inprogress"]
    for name in (*kept, hidden(mine.part(2)), hidden(mine.part(3, "bucket"))):
        (out / name).touch()
    sink.clean_up([JobId("0" * 32)])
    assert sorted(each.name for each in out.rglob("*") if each.is_file()) == sorted(kept)


@pytest.mark.feature("F285")
def test_a_crash_between_completion_and_commit_is_repaired_by_the_restore(
    world: World, sink: FileSink, tmp_path: Path
) -> None:
    first = Hosted(SinkOperator(sink), world)
    first.rows({"n": 1})
    state = first.snapshot(1).lists[0]
    first.rows({"n": 2})
    second = Hosted(SinkOperator(sink), world, lists=state, restored=CheckpointId(1), attempt=1)
    world.settle()
    assert numbers(tmp_path / "out") == [1]
    second.rows({"n": 2})
    second.snapshot(2)
    second.complete(2)
    assert numbers(tmp_path / "out") == [1, 2]


def test_a_crash_between_commit_and_confirmation_commits_again_without_harm(
    world: World, sink: FileSink, tmp_path: Path
) -> None:
    first = Hosted(SinkOperator(sink), world)
    first.rows({"n": 1})
    state = first.snapshot(1).lists[0]
    first.complete(1)
    for attempt in (1, 2):
        Hosted(
            SinkOperator(sink), world, lists=dict(state), restored=CheckpointId(1), attempt=attempt
        )
        world.settle()
    assert numbers(tmp_path / "out") == [1]


def test_what_is_restored_is_committed_before_the_first_row_is_written(
    world: World, sink: FileSink, tmp_path: Path
) -> None:
    first = Hosted(SinkOperator(sink), world)
    first.rows({"n": 1})
    state = first.snapshot(1).lists[0]
    second = Hosted(SinkOperator(sink), world, lists=state, restored=CheckpointId(1), attempt=1)
    assert numbers(tmp_path / "out") == []
    second.rows({"n": 2})
    assert numbers(tmp_path / "out") == [1]


def test_a_part_that_is_gone_is_said_to_be_lost(world: World, tmp_path: Path) -> None:
    sink = FileSink.json(str(tmp_path))
    first = Hosted(SinkOperator(sink), world)
    first.rows({"n": 1})
    state = first.snapshot(1).lists[0]
    for path in tmp_path.iterdir():
        path.unlink()
    Hosted(SinkOperator(sink), world, lists=state, restored=CheckpointId(1), attempt=1)
    with pytest.raises(CommitFailed, match="1 rows is neither pending nor committed"):
        world.settle()


def test_a_rename_that_got_as_far_as_its_copy_is_finished(tmp_path: Path) -> None:
    part = PartCommittable(str(tmp_path), "part-1.csv", 1)
    (tmp_path / "part-1.csv").write_text("n\n1\n")
    (tmp_path / hidden("part-1.csv")).write_text("n\n1\n")
    PartCommitter().commit([part.to_bytes()])
    assert [path.name for path in tmp_path.iterdir()] == ["part-1.csv"]


def test_a_copy_that_was_torn_is_made_anew(tmp_path: Path) -> None:
    part = PartCommittable(str(tmp_path), "part-1.csv", 1)
    (tmp_path / "part-1.csv").write_text("n\n")
    (tmp_path / hidden("part-1.csv")).write_text("n\n1\n")
    PartCommitter().commit([part.to_bytes()])
    assert (tmp_path / "part-1.csv").read_text() == "n\n1\n"
    assert in_progress(tmp_path) == []


@pytest.mark.parametrize("data", [b"", b"{}", b'{"v":9}', b"[1]", b"[" * 10_000])
def test_what_is_no_committable_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="not a committable"):
        PartCommittable.from_bytes(data)


@pytest.mark.feature("F287")
@settings(examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_finished_files_hold_each_row_once_whatever_is_killed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("sink")
    kind = data.draw(st.sampled_from(sorted(SINKS)), "kind")
    with World() as world:
        job = SinkJob(world, SINKS[kind](str(folder)), data.draw(st.integers(1, 3), "parallelism"))
        for _ in range(data.draw(st.integers(0, 25), "events")):
            subtasks = st.integers(0, len(job.subtasks) - 1)
            match data.draw(st.sampled_from(["rows", "rows", "checkpoint", "complete", "kill"])):
                case "rows":
                    job.write(data.draw(subtasks), data.draw(st.integers(1, 5), "rows"))
                case "checkpoint":
                    job.checkpoint(data.draw(st.booleans(), "durable"))
                case "complete":
                    told = data.draw(st.lists(st.booleans(), min_size=3, max_size=3), "told")
                    job.complete(told, settle=data.draw(st.booleans(), "settle"))
                case "kill":
                    job = job.killed(data.draw(st.integers(1, 3), "parallelism"))
            found = numbers(folder)
            assert len(found) == len(set(found))
        job.finish()
        assert numbers(folder) == list(range(job.written))
        assert in_progress(folder) == []


@dataclass
class Cut:
    number: int
    lists: list[dict[str, list[object]]]
    written: int


class SinkJob:
    """Subtasks of a sink behind a source that counts, killed and restored."""

    def __init__(
        self,
        world: World,
        sink: FileSink,
        parallelism: int,
        *,
        latest: Cut | None = None,
        attempt: int = 0,
        number: int = 0,
    ) -> None:
        from tests.operators.world import Snapshot

        self.world = world
        self.sink = sink
        self.latest = latest
        self.attempt = attempt
        self.number = number
        self.written = latest.written if latest else 0
        self.pending: list[tuple[Cut, list[object]]] = []
        dealt = Snapshot(latest.lists).redistributed(parallelism) if latest else None
        self.subtasks = [
            Hosted(
                SinkOperator(sink),
                world,
                subtask=index,
                parallelism=parallelism,
                attempt=attempt,
                lists=dealt[index] if dealt else {},
                restored=CheckpointId(latest.number) if latest else None,
            )
            for index in range(parallelism)
        ]

    def write(self, subtask: int, rows: int) -> None:
        self.subtasks[subtask].rows(*({"n": self.written + i} for i in range(rows)))
        self.written += rows

    def checkpoint(self, durable: bool) -> None:
        """Cut; acknowledged only where all is made durable."""
        self.number += 1
        cuts = [subtask.cut(self.number) for subtask in self.subtasks]
        if durable:
            for cut in cuts:
                if cut.durable is not None:
                    self.world.wait_for(cut.durable)
            taken = Cut(self.number, [cut.lists for cut in cuts], self.written)
            self.pending = [(taken, [])]

    def complete(self, told: list[bool], *, settle: bool = True) -> None:
        """The checkpoint stands; some subtasks hear of it, and have time to commit or not."""
        if not self.pending:
            return
        (self.latest, _), self.pending = self.pending[0], []
        for subtask, hears in zip(self.subtasks, told, strict=False):
            if hears:
                number = CheckpointId(self.latest.number)
                self.world.on_loop(lambda one=subtask, n=number: one.operator.on_complete(n))
        if settle:
            self.world.settle()

    def killed(self, parallelism: int) -> "SinkJob":
        for task in self.world.started:
            task.cancel()
        self.world.forget()
        for subtask in self.subtasks:
            subtask.operator.close()
        return SinkJob(
            self.world,
            self.sink,
            parallelism,
            latest=self.latest,
            attempt=self.attempt + 1,
            number=self.number,
        )

    def finish(self) -> None:
        for subtask in self.subtasks:
            subtask.finish()
        self.checkpoint(durable=True)
        self.complete([True] * len(self.subtasks))
        for subtask in self.subtasks:
            subtask.operator.close()


# --- rows ---


def committed(world: World, sink: FileSink, *batches: object) -> None:
    step = Hosted(SinkOperator(sink), world)
    try:
        for batch in batches:
            step.process(batch) if not isinstance(batch, list) else step.rows(*batch)
        step.snapshot(1)
        step.complete(1)
    finally:
        step.operator.close()


class Named(NamedTuple):
    n: int
    s: str


@dataclass
class Data:
    n: int
    s: str


@pytest.mark.parametrize("row", [{"n": 1, "s": "a"}, Named(1, "a"), Data(1, "a")])
def test_parquet_takes_dicts_named_tuples_and_dataclasses(
    world: World, tmp_path: Path, row: object
) -> None:
    committed(world, FileSink.parquet(str(tmp_path)), [row])
    assert pq.read_table(visible_files(tmp_path)[0]).to_pylist() == [{"n": 1, "s": "a"}]


def test_arrow_batches_and_rows_go_into_one_part(world: World, tmp_path: Path) -> None:
    committed(world, FileSink.parquet(str(tmp_path)), arrow({"n": [1, 2]}), [{"n": 3}])
    assert numbers(tmp_path) == [1, 2, 3]
    assert len(visible_files(tmp_path)) == 1


def test_types_are_found_over_all_rows_of_a_group(world: World, tmp_path: Path) -> None:
    batches = [[{"n": 1, "x": None}], [{"n": 2, "x": 1}], [{"n": 3, "x": 0.5, "y": "new"}]]
    committed(world, FileSink.parquet(str(tmp_path)), *batches)
    assert pq.read_table(visible_files(tmp_path)[0]).to_pylist() == [
        {"n": 1, "x": None, "y": None},
        {"n": 2, "x": 1.0, "y": None},
        {"n": 3, "x": 0.5, "y": "new"},
    ]


def test_columns_that_change_begin_a_new_part(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "GROUP_ROWS", 1)
    batches = [[{"n": 1}], [{"n": 2}], [{"n": 3, "s": "a"}], [{"n": 4}]]
    committed(world, FileSink.parquet(str(tmp_path)), *batches)
    assert [pq.read_table(path).num_rows for path in visible_files(tmp_path)] == [2, 2]
    assert numbers(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "columns",
    [
        pa.schema([("n", pa.int32()), ("s", pa.string())]),
        Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()]),
    ],
    ids=["Arrow's", "a type"],
)
def test_a_schema_holds_rows_to_its_types(
    world: World, tmp_path: Path, columns: pa.Schema | TypeInformation
) -> None:
    schema = pa.schema([("n", pa.int32()), ("s", pa.string())])
    committed(
        world, FileSink.parquet(str(tmp_path), columns), [{"n": 1}], arrow({"n": [2], "s": ["a"]})
    )
    table = pq.read_table(visible_files(tmp_path)[0])
    assert table.schema.equals(schema)
    assert table.to_pylist() == [{"n": 1, "s": None}, {"n": 2, "s": "a"}]


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (partial(FileSink.parquet, "out"), "FileSink"),
        (partial(FileSink.csv, "out"), "FileSink"),
        (partial(FileSource.csv, "in"), "FileSource"),
        (partial(FileSource.json, "in"), "FileSource"),
    ],
)
def test_a_schema_that_is_none_is_refused_by_name(make: Callable[..., object], where: str) -> None:
    with pytest.raises(ConfigError, match=r"The schema is \{'n': 'int'\}") as refused:
        make(schema={"n": "int"})
    assert refused.value.where == where
    assert "pyarrow.Schema" in refused.value.remedy


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"n": "x"}, "column 'n' holds 'x', which does not fit int32"),
        ({"n": 1, "m": 2}, "columns that the schema does not: m"),
        (42, "an int has no named fields"),
    ],
)
def test_a_row_that_does_not_fit_is_shown(
    world: World, tmp_path: Path, row: object, text: str
) -> None:
    schema = pa.schema([("n", pa.int32())])
    with pytest.raises(BadRecord, match=text) as caught:
        committed(world, FileSink.parquet(str(tmp_path), schema), [{"n": 1}, row])
    assert "row 1 of a batch" in caught.value.where


def test_an_arrow_batch_that_does_not_fit_the_schema_is_refused(
    world: World, tmp_path: Path
) -> None:
    schema = pa.schema([("n", pa.int32())])
    for batch, why in (
        (arrow({"n": ["x"]}), "does not fit the sink's schema"),
        (arrow({"n": [1], "m": [1]}), "columns that the sink's schema does not: m"),
    ):
        with pytest.raises(BadRecord, match=why):
            committed(world, FileSink.parquet(str(tmp_path), schema), batch)


def test_a_value_without_a_json_form_is_shown_with_its_row(world: World, tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match="no JSON form") as caught:
        committed(world, FileSink.json(str(tmp_path)), [{"n": 1}, {"n": object}])
    assert "row 1 of a batch" in caught.value.where


def test_a_type_that_csv_cannot_hold_fails_the_write(world: World, tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match="cannot be written as csv"):
        committed(world, FileSink.csv(str(tmp_path)), [{"n": [1, 2]}])
    assert in_progress(tmp_path) == []


def test_json_takes_any_value_and_numpy_scalars(world: World, tmp_path: Path) -> None:
    import numpy as np

    committed(
        world, FileSink.json(str(tmp_path)), [[1, "a"], np.int64(2), None, {"x": np.float32(0.5)}]
    )
    assert visible_files(tmp_path)[0].read_text() == '[1,"a"]\n2\nnull\n{"x":0.5}\n'


def test_a_folder_that_cannot_be_made_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError):
        SinkOperator(FileSink.json(str(tmp_path / "file" / "out"))).check()


@pytest.mark.parametrize("prefix", ["", ".part", "_part", "a/b"])
def test_a_prefix_that_readers_would_overlook_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="prefix"):
        FileSink.json("out", prefix=prefix)
