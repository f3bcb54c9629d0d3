"""``FileSource``: files as a source, bounded or watched."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final

from flinkformat.frozen import frozen
from tidegate.api.dead_letters import checked_policy
from tidegate.api.output_tag import OutputTag
from tidegate.config.spans import millis_of
from tidegate.connectors.files.enumerator import (
    FileEnumerator,
    check_location,
    files_at,
    files_with_rows,
    is_pattern,
)
from tidegate.connectors.files.file_reader import FileReader
from tidegate.connectors.files.formats import RowFormat
from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.connectors.files.splits import FileSplit
from tidegate.connectors.files.text import CsvFormat, JsonFormat, TextFormat
from tidegate.connectors.schemas.messages import one_char
from tidegate.connectors.shares import check_rate
from tidegate.errors import ConfigError
from tidegate.storage import paths
from tidegate.storage.stores import Stores
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from tidegate.api.dead_letters import DeadLetter, Malformed
    from tidegate.api.source import EnumeratorContext, ReaderContext
    from tidegate.config.spans import Span
    from tidegate.connectors.files.formats import BulkFormat, StreamFormat
    from tidegate.typeinfo.types import TypeInformation

_LOOKED_AT: Final = 16
"""Files whose headers are looked at before a job starts."""


@frozen
class FileSource:
    """Files as a source: rows are dicts, lines of text are str; Arrow batches after ``arrow()``.

    Made by ``parquet``, ``csv``, ``json`` and ``text``, or PyFlink's builders, whose rows are
    ``Row``; the other methods give a changed copy. A path is a file, a folder (with all below it)
    or a pattern such as ``in/*.csv``, on this machine or a URL. Files whose names begin with a dot
    or an underscore are left out. Large files are cut into parts that are read in parallel; rows
    keep their order within a part.
    """

    file_format: ParquetFormat | CsvFormat | JsonFormat | TextFormat | RowFormat
    locations: tuple[str, ...]
    as_arrow: bool = False
    interval_ms: int | None = None
    rows_per_second: float | None = None
    letters: OutputTag[DeadLetter] | None = None

    split_type: ClassVar = FileSplit

    @staticmethod
    def parquet(
        *location: str, columns: Sequence[str] | None = None, rate: float | None = None
    ) -> FileSource:
        """A source of Parquet files. columns: those to read; None for all."""
        chosen = None if columns is None else tuple(columns)
        return _made(ParquetFormat(chosen), location).rate(rate)

    @staticmethod
    def csv(
        *location: str,
        schema: pa.Schema | TypeInformation | None = None,
        delimiter: str = ",",
        header: bool = True,
        newlines_in_values: bool = False,
        rate: float | None = None,
    ) -> FileSource:
        """A source of CSV files.

        schema: of the columns to read; None finds them in the first file. Raises ConfigError for a
        delimiter that is not one character.
        """
        file_format = CsvFormat(
            schema=_serialised(schema),
            delimiter=one_char(delimiter, "delimiter", "FileSource.csv"),
            header=header,
            newlines=newlines_in_values,
        )
        return _made(file_format, location).rate(rate)

    @staticmethod
    def json(
        *location: str, schema: pa.Schema | TypeInformation | None = None, rate: float | None = None
    ) -> FileSource:
        """A source of files with a JSON value a line. schema: for Arrow batches; None finds it."""
        return _made(JsonFormat(schema=_serialised(schema)), location).rate(rate)

    @staticmethod
    def json_lines(
        *location: str, schema: pa.Schema | TypeInformation | None = None, rate: float | None = None
    ) -> FileSource:
        """Another name of ``json``."""
        return FileSource.json(*location, schema=schema, rate=rate)

    @staticmethod
    def text(*location: str, rate: float | None = None) -> FileSource:
        """A source of text files: a str for each line, without its end."""
        return _made(TextFormat(), location).rate(rate)

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        """A builder for sources that are read record by record: lines of text, or CSV as rows.

        >>> FileSource.for_record_stream_format(StreamFormat.text_line_format(), "logs/").build()
        """
        return FileSourceBuilder(lambda: _made(stream_format.file_format, paths))

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        """A builder for sources that are read in blocks of columns, as rows.

        >>> FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row_type), "in/").build()
        """
        return FileSourceBuilder(lambda: _made(bulk_format.file_format, paths))

    def arrow(self) -> FileSource:
        """A copy that emits Arrow batches instead of rows."""
        match self.file_format:
            case TextFormat():
                raise ConfigError(
                    "Lines of text have no columns",
                    where="FileSource.arrow",
                    remedy="Read them as rows, without arrow(); or use FileSource.csv or json.",
                )
            case CsvFormat() | JsonFormat() as text:
                return replace(self, file_format=replace(text, arrow=True), as_arrow=True)
            case ParquetFormat():
                return replace(self, as_arrow=True)
            case RowFormat(columns):
                return replace(self, file_format=columns).arrow()

    def rate(self, rows_per_second: float | None) -> FileSource:
        """A copy limited to so many rows a second, over all readers together; None for no limit."""
        check_rate(rows_per_second, "FileSource")
        return replace(self, rows_per_second=rows_per_second)

    def monitor_continuously(self, interval: Span) -> FileSource:
        """A copy that looks for new files for ever. interval: between two looks; a number is ms."""
        interval_ms = millis_of(interval, where="FileSource.monitor_continuously")
        return replace(self, interval_ms=max(1, interval_ms))

    def on_malformed(self, policy: Malformed) -> FileSource:
        """A copy with a policy for unreadable rows: "fail" the job, or "skip" and count them.

        The tag of a side output gets a ``DeadLetter`` for each, with the bytes of the line.
        """
        fails = checked_policy(policy, "FileSource") == "fail"
        made = replace(self, letters=policy if isinstance(policy, OutputTag) else None)
        match self.file_format:
            case ParquetFormat():
                return self
            case RowFormat(columns) as rows:
                if isinstance(columns, ParquetFormat):
                    return self
                lenient = replace(rows, columns=replace(columns, skip=not fails))
                return replace(made, file_format=lenient)
            case CsvFormat() | JsonFormat() | TextFormat() as text:
                return replace(made, file_format=replace(text, skip=not fails))

    # Source

    @property
    def bounded(self) -> bool:
        return self.interval_ms is None

    @property
    def produced_type(self) -> TypeInformation | None:
        match self.file_format:
            case TextFormat():
                return Types.STRING()
            case RowFormat(row_type=row_type):
                return row_type
            case _:
                return None

    @property
    def unmatched(self) -> list[str]:
        """Patterns that match no file now."""
        stores = Stores()
        patterns = [place for place in self.locations if is_pattern(place)]
        return [place for place in patterns if next(files_at(stores, place), None) is None]

    def check(self) -> None:
        """Raises ConfigError for a missing path, BadRecord for an unreadable file."""
        stores = Stores()
        for location in self.locations:
            check_location(stores, location, watched=not self.bounded)
        first = next(files_with_rows(stores, self.locations), None)
        if first is not None:
            self.file_format.check(stores, first.path)
        if isinstance(csv := self._columns, CsvFormat):
            csv.check_named(stores, self._all_files(stores))

    @property
    def missing_columns(self) -> dict[str, str | None]:
        """Columns that no file has, each with the nearest name that they have, if one is near."""
        if not isinstance(csv := self._columns, CsvFormat):
            return {}
        stores = Stores()
        return csv.missing(stores, self._all_files(stores))

    @property
    def _columns(self) -> object:
        form = self.file_format
        return form.columns if isinstance(form, RowFormat) else form

    def _all_files(self, stores: Stores) -> list[str]:
        """All files with rows; none where more come or are there, which may have other columns."""
        if not self.bounded:
            return []
        files = list(islice(files_with_rows(stores, self.locations), _LOOKED_AT + 1))
        return [file.path for file in files] if len(files) <= _LOOKED_AT else []

    def enumerator(
        self, context: EnumeratorContext[FileSplit], restored: bytes | None
    ) -> FileEnumerator:
        return FileEnumerator(
            context, Stores(), self.locations, self.file_format, self.interval_ms, restored
        )

    def reader(self, context: ReaderContext) -> FileReader:
        return FileReader(
            context,
            Stores(),
            self.file_format,
            arrow=self.as_arrow,
            rate=self.rows_per_second,
            letters=self.letters,
        )


class FileSourceBuilder:
    """Makes a ``FileSource``. Methods give itself."""

    def __init__(self, make: Callable[[], FileSource]) -> None:
        self._make = make
        self._interval: Span | None = None

    def monitor_continuously(self, discovery_interval: Span) -> FileSourceBuilder:
        """Look for new files for ever, so often."""
        self._interval = discovery_interval
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files there are, then end; so it is unless said otherwise."""
        self._interval = None
        return self

    def build(self) -> FileSource:
        """The source. Raises ConfigError if there is no path."""
        made = self._make()
        return made if self._interval is None else made.monitor_continuously(self._interval)


def _made(
    file_format: ParquetFormat | CsvFormat | JsonFormat | TextFormat | RowFormat,
    locations: tuple[str, ...],
) -> FileSource:
    if not locations:
        raise ConfigError("There is no path", where="FileSource", remedy="Give one or more.")
    return FileSource(file_format, tuple(paths.absolute(str(place)) for place in locations))


def _serialised(schema: pa.Schema | TypeInformation | None) -> bytes | None:
    if schema is None:
        return None
    from tidegate.typeinfo.arrow import schema_bytes  # programs without columns do without Arrow

    return schema_bytes(schema, "FileSource")
