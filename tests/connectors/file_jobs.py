"""Sources over files, and files with a line that cannot be read."""

from collections.abc import Callable

from tidegate.api.operator import SourceOperator
from tidegate.connectors.files.file_source import FileSource
from tidegate.operators.sources.source import SourceReaderOperator


def operator(source: FileSource) -> Callable[[], SourceOperator]:
    return lambda: SourceReaderOperator(source, None, "files")


BAD_LINES = {
    "json": (FileSource.json, '{"n": 1}\n{"n": 2\n{"n": 3}\n', 2),
    "text": (FileSource.text, "one\n\udcff\nthree\n", 2),
}
