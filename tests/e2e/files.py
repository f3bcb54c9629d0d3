"""Numbers as Parquet files, and the files that sinks have committed, with their rows."""

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq


def write_numbers(folder: Path, files: int, rows_each: int) -> None:
    """Numbers from 0 on, in files of some row groups each."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        numbers = range(file * rows_each, (file + 1) * rows_each)
        table = pa.table({"number": pa.array(numbers, pa.int64())})
        pq.write_table(table, folder / f"{file:03}.parquet", row_group_size=max(1, rows_each // 4))


def committed_rows(folder: Path) -> list[dict[str, int]]:
    """The rows of all committed files."""
    return [
        row
        for file in committed_files(folder)
        for row in cast("list[dict[str, int]]", pq.read_table(file).to_pylist())
    ]


def committed_files(folder: Path) -> list[Path]:
    """All visible part files; what is hidden is not committed."""
    return sorted(folder.rglob("[!._]*.parquet")) if folder.exists() else []


def visible_files(folder: Path) -> list[Path]:
    """All committed files, of any format."""
    return sorted(path for path in folder.rglob("[!.]*") if path.is_file())


def json_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of all committed files of JSON lines."""
    files = visible_files(folder)
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def hidden_files(folder: Path) -> list[Path]:
    """Files that are not, or not yet, committed."""
    return sorted(path for path in folder.rglob(".*") if path.is_file())
