"""Sources over files, the files themselves, and some with a line that cannot be read."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.operators.source_job import SourceJob
from tests.operators.world import World
from tidegate.api.operator import SourceOperator
from tidegate.connectors.files.file_source import FileSource
from tidegate.model.settings import SlotSettings
from tidegate.operators.sources.source import SourceReaderOperator

SMALL = SlotSettings(rows=7, arrow_rows=11)


def operator(source: FileSource) -> Callable[[], SourceOperator]:
    return lambda: SourceReaderOperator(source, None, "files")


BAD_LINES = {
    "json": (FileSource.json, '{"n": 1}\n{"n": 2\n{"n": 3}\n', 2),
    "text": (FileSource.text, "one\n\udcff\nthree\n", 2),
}


def read_all(world: World, source: FileSource, parallelism: int = 1) -> list[object]:
    source.check()
    job = SourceJob(world, operator(source), parallelism, settings=SMALL)
    job.run_to_end()
    return job.emitted


def rows(first: int, count: int) -> list[dict[str, object]]:
    return [{"n": n, "text": f"row {n}"} for n in range(first, first + count)]


def write_parquet(path: Path, values: list[dict[str, object]], group: int = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(values), path, row_group_size=group)


def write_csv(path: Path, values: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["n,text", *(f"{row['n']},{row['text']}" for row in values)]
    path.write_text("\n".join(lines) + "\n")


def write_json(path: Path, values: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in values))


WRITERS = {
    "parquet": (write_parquet, FileSource.parquet),
    "csv": (write_csv, FileSource.csv),
    "json": (write_json, FileSource.json),
}
