"""Writing parts: what turns batches into the bytes of one file. Blocking; called on a pool."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from flinkformat.frozen import frozen
from tidegate.api.rows.batches import raised, shown
from tidegate.errors import BadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.storage.store import Writer, Written


class PartEncoder(Protocol):
    """Writes one part of a file sink."""

    def write(self, table: pa.Table) -> None:
        """Adds rows of the part's schema."""
        ...

    def close(self) -> Written:
        """Completes the part durably."""
        ...

    def abort(self) -> None:
        """Stops writing; the file is abandoned."""
        ...


@frozen
class ParquetEncoding:
    """Parquet files. compression: of the columns, as pyarrow names it."""

    compression: str = "zstd"
    suffix: str = ".parquet"

    def encoder(self, writer: Writer, schema: Any) -> PartEncoder:
        stream = _Stream(writer)
        return _TableEncoder(pq.ParquetWriter(stream, schema, compression=self.compression), stream)


@frozen
class CsvEncoding:
    """CSV files. header: each part begins with the names of the columns.

    arrays: columns of lists, with the separator of their elements.
    """

    delimiter: str = ","
    header: bool = True
    suffix: str = ".csv"
    arrays: tuple[tuple[str, str], ...] = ()

    def encoder(self, writer: Writer, schema: Any) -> PartEncoder:
        options = pa_csv.WriteOptions(
            include_header=self.header, delimiter=self.delimiter, quoting_style="needed"
        )
        stream = _Stream(writer)
        schema = self._joined(schema.empty_table()).schema
        encoder = pa_csv.CSVWriter(stream, schema, write_options=options)
        return _TableEncoder(encoder, stream, self._joined)

    def _joined(self, table: pa.Table) -> pa.Table:
        for name, separator in self.arrays:
            index = table.schema.get_field_index(name)
            elements = table.column(index).cast(pa.list_(pa.string())).to_pylist()
            texts = [None if each is None else separator.join(each) for each in elements]
            table = table.set_column(index, name, pa.array(texts, pa.string()))
        return table


@frozen
class LinesEncoding:
    """Values one by one. encode: bytes of a value; None writes a line of JSON."""

    encode: Callable[[Any], bytes] | None = None
    suffix: str = ".jsonl"

    def encoder(self, writer: Writer, schema: object) -> Writer:
        return writer  # lines are bytes already

    def lines(self, values: Sequence[object]) -> bytes:
        """Bytes of some values. Raises BadRecord with the first value that has none."""
        if self.encode is None:
            return json_lines(values)
        lines: list[Any] = []
        try:
            lines.extend(map(self.encode, values))  # what came before a failure is kept
        except Exception as error:
            raise _not_encoded(values, len(lines), raised(error)) from error
        if len(lines) < len(values):  # it ends a map without a word
            raise _not_encoded(values, len(lines), "the encoder raised StopIteration")
        try:
            return b"".join(lines)
        except TypeError as error:
            index = next(i for i, line in enumerate(lines) if not _is_bytes(line))
            raise _not_encoded(values, index, raised(error)) from error


def _is_bytes(line: Any) -> bool:
    try:
        b"".join([line])
    except TypeError:
        return False
    return True


def _not_encoded(values: Sequence[object], index: int, why: str) -> BadRecord:
    return BadRecord(
        f"a row cannot be encoded: {why}",
        where=f"row {index} of a batch: {shown(values[index])}",
        remedy="Let the sink's encoder give bytes for each row.",
    )


Encoding = ParquetEncoding | CsvEncoding


class _TableEncoder:
    def __init__(
        self,
        encoder: Any,
        stream: _Stream,
        prepare: Callable[[pa.Table], pa.Table] = lambda table: table,
    ) -> None:
        self._encoder = encoder
        self._stream = stream
        self._prepare = prepare

    def write(self, table: pa.Table) -> None:
        self._encoder.write_table(self._prepare(table))

    def close(self) -> Written:
        self._encoder.close()
        return self._stream.finish()

    def abort(self) -> None:
        # Arrow's writers must be closed all the same.
        self._stream.drop()
        with suppress(pa.ArrowException):
            self._encoder.close()


class _Stream:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._dropped = False
        self.closed = False

    def write(self, data: Any) -> int:
        if not self._dropped:
            self._writer.write(memoryview(data))
        return len(data)

    def drop(self) -> None:
        self._dropped = True

    def flush(self) -> None:
        pass

    def close(self) -> None:
        return  # Arrow may close its output; only ``finish`` completes the file

    def finish(self) -> Written:
        self.closed = True
        return self._writer.close()


def json_lines(values: Sequence[object]) -> bytes:
    """Each value as a line of JSON; named tuples as objects, numbers that are not finite as null.

    Raises BadRecord with the first value that has no JSON form.
    """
    if any(hasattr(kind, "_asdict") for kind in set(map(type, values))):
        values = [cast("Any", row)._asdict() if hasattr(row, "_asdict") else row for row in values]
    encoder = msgspec.json.Encoder(enc_hook=_plain)
    try:
        return encoder.encode_lines(values)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        pass
    for index, value in enumerate(values):
        try:
            encoder.encode(value)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise BadRecord(
                f"a row has no JSON form: {error}",
                where=f"row {index} of a batch: {shown(value)}",
                remedy="Make it of dicts, lists, text, numbers, booleans, dates and None.",
            ) from error
    raise AssertionError("rows that fail together fail alone")


def _plain(value: Any) -> object:
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if hasattr(value, "item"):
        return value.item()  # a NumPy scalar
    raise TypeError(f"there is none for {type(value).__name__}")
