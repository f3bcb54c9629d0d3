"""Reading CSV, JSON lines and plain lines."""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, cast

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from flinkformat.frozen import frozen
from tidegate.api.dead_letters import DeadLetter
from tidegate.api.rows.batches import shown
from tidegate.connectors.files.lines import (
    BLOCK_BYTES,
    BYTE_ORDER_MARK,
    END,
    LineBlocks,
    Quotes,
    byte_parts,
    line_number,
    lines_of,
    opened_text,
)
from tidegate.connectors.files.splits import Block
from tidegate.errors import BadRecord, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidegate.connectors.files.splits import FileSplit
    from tidegate.storage.stores import Stores

Rows = list[object] | pa.RecordBatch
_UNREADABLE = (pa.ArrowException, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LOOK_BYTES = 4 * BLOCK_BYTES
_BEYOND_JSON = (b"NaN", b"Infinity", b"Inf")
"""Numbers that pyarrow reads, and JSON has not."""


class _Object(msgspec.Struct, gc=False):
    """Any object of JSON; its content is skipped."""


_OBJECTS = msgspec.json.Decoder(_Object)


@frozen
class TextFormat:
    """Lines of text, each a str without its end.

    skip: pass over what cannot be read. charset: one whose line end is one byte.
    """

    skip: bool = False
    charset: str = "utf-8"

    def check(self, stores: Stores, path: str) -> None:
        """Accepts any file: it is text until it is read."""

    def schema_of(self, stores: Stores, path: str) -> None:
        return

    def cut(self, stores: Stores, path: str, size: int, target: int) -> list[tuple[int, int]]:
        return byte_parts(path, size, target)

    def blocks(self, stores: Stores, split: FileSplit) -> Iterator[Block]:
        with opened_text(stores, split.path) as stream:
            found = _blocks_of(LineBlocks(stream, split.path), split, split.start)
            parse = partial(_text_lines, charset=self.charset)
            yield from _parsed(found, parse, stores, split, skip=self.skip)


@frozen
class JsonFormat:
    """A JSON value a line: any for rows, an object of the schema's columns for Arrow batches.

    arrow: as Arrow batches. schema: of these; None finds it in the first file.
    """

    arrow: bool = False
    schema: bytes | None = None
    skip: bool = False

    def check(self, stores: Stores, path: str) -> None:
        if self.arrow and self.schema is None:
            self.schema_of(stores, path)

    def schema_of(self, stores: Stores, path: str) -> pa.Schema | None:
        if not self.arrow or self.schema is not None:
            return None
        block = _first_block(stores, path)
        if self.skip:
            block = _readable(block)
        return _without_nulls(_look(lambda: _json_table(block), path))

    def cut(self, stores: Stores, path: str, size: int, target: int) -> list[tuple[int, int]]:
        return byte_parts(path, size, target)

    def blocks(self, stores: Stores, split: FileSplit) -> Iterator[Block]:
        parse = self._arrow_parser(split) if self.arrow else _json_lines
        with opened_text(stores, split.path) as stream:
            found = _blocks_of(LineBlocks(stream, split.path), split, split.start)
            yield from _parsed(found, parse, stores, split, skip=self.skip)

    def _arrow_parser(self, split: FileSplit) -> Callable[[bytes], Rows]:
        schema = schema_from(self.schema or split.schema)
        options = pa_json.ParseOptions(
            explicit_schema=schema,
            unexpected_field_behavior="ignore" if self.schema else "error",
        )

        def parse(block: bytes) -> Rows:
            return _one_batch(_json_table(block, options))

        return parse


@frozen
class CsvFormat:
    """Comma-separated values; rows are dicts of typed values, or Arrow batches.

    header: the first line names the columns; without, the schema does. schema: of the columns to
    read; None finds all in the first file. newlines: a quoted value may hold line ends; such a
    file is read as one part. quote_char, escape_char: None for none. null_value: the text of a
    missing value; None takes empty ones and the usual words. strict: the header has to name the
    schema's columns in their order. comments: lines that begin with ``#`` are none. skip_first: so
    is the first line of values. arrays: columns of lists, with what separates their elements.
    """

    arrow: bool = False
    schema: bytes | None = None
    delimiter: str = ","
    header: bool = True
    newlines: bool = False
    skip: bool = False
    quote_char: str | None = '"'
    escape_char: str | None = None
    null_value: str | None = None
    strict: bool = False
    comments: bool = False
    skip_first: bool = False
    arrays: tuple[tuple[str, str], ...] = ()

    def check(self, stores: Stores, path: str) -> None:
        if self.schema is None:
            self.schema_of(stores, path)

    def schema_of(self, stores: Stores, path: str) -> pa.Schema | None:
        if self.schema is not None:
            return None
        if not self.header:
            raise ConfigError(
                "Columns without a header have no names",
                where=path,
                remedy="Give a schema.",
            )
        block = _first_block(stores, path, quotes=self._line_quotes)
        schema = self._columns(block, path, skip=self.skip)
        _check_once(schema.names, path)
        odd = [field.name for field in schema if pa.types.is_binary(field.type)]
        if odd and not self.skip:
            raise BadRecord(
                f"Values of the columns {', '.join(odd)} are not text in UTF-8",
                where=path,
                remedy="Write the file in UTF-8, or declare such columns as pa.binary() in a "
                "schema.",
            )
        return _without_nulls(schema)

    def check_named(self, stores: Stores, paths: Sequence[str]) -> None:
        """Raises ConfigError if these files have no column of the schema, or lack one without null.

        Other columns may be for files to come: they are null, and the program is warned.
        """
        missing = self.missing(stores, paths)
        if not missing:
            return
        schema = schema_from(self.schema)
        if len(missing) < len(schema) and all(schema.field(name).nullable for name in missing):
            return
        columns = [f"{name} (but {near})" if near else name for name, near in missing.items()]
        raise ConfigError(
            f"The schema has columns that no file has: {', '.join(columns)}",
            where=", ".join(paths),
            remedy="Write them as the header does, or leave them out.",
        )

    def missing(self, stores: Stores, paths: Sequence[str]) -> dict[str, str | None]:
        """Columns of the schema that none of these files has, with the nearest name that they have.

        The name is one that the schema has not; None where none is near.
        """
        if self.schema is None or not self.header or not paths:
            return {}
        schema = schema_from(self.schema)
        found: set[str] = set()
        for path in paths:
            lines, _ = self._first_lines(stores, path, 1)
            found.update(self._names(lines[0], schema, path) if lines else schema.names)
            if found.issuperset(schema.names):
                return {}
        others = {name.lower(): name for name in sorted(found.difference(schema.names))}
        missing: dict[str, str | None] = {}
        for name in schema.names:
            if name not in found:
                near = get_close_matches(name.lower(), others, n=1)
                missing[name] = others[near[0]] if near else None
        return missing

    def cut(self, stores: Stores, path: str, size: int, target: int) -> list[tuple[int, int]]:
        """Ranges of bytes, cut only if a line end always ends a row."""
        return [(0, END)] if self.newlines else byte_parts(path, size, target)

    def blocks(self, stores: Stores, split: FileSplit) -> Iterator[Block]:
        schema = schema_from(self.schema or split.schema)
        names = list(schema.names)
        lines, first = self._first_lines(stores, split.path, self.header + self.skip_first)
        if self.header:
            if not lines:
                return  # a file of blank lines and comments
            names = self._names(lines[0], schema, split.path)
        parse = self._parser(names, schema)
        # A value that goes on in the next line is one bad row, or its rest would be taken for one.
        rows = self._line_quotes or self._quotes(closed=True)
        with opened_text(stores, split.path) as stream:
            lines = LineBlocks(stream, split.path, quotes=self._line_quotes)
            found = _blocks_of(lines, split, max(split.start, first))
            yield from _parsed(found, parse, stores, split, skip=self.skip, quotes=rows)

    def _first_lines(self, stores: Stores, path: str, count: int) -> tuple[list[bytes], int]:
        """This many lines that are neither blank nor comments, and the position after them.

        Raises BadRecord for a line with a line end of another kind in it.
        """
        lines: list[bytes] = []
        position, quotes = 0, self._line_quotes
        while len(lines) < count:
            with opened_text(stores, path) as stream:
                line, end = LineBlocks(stream, path, quotes=quotes).line_at(position)
            if end == position:
                break
            position = end
            if any(b"\r" in unquoted for unquoted in line.split(b'"')[::2]):
                raise BadRecord(
                    "Lines end with '\\r' alone, so that the whole file would be its first line",
                    where=path,
                    remedy="Write the file with lines that end with '\\n' or '\\r\\n'.",
                )
            if line and not (self.comments and line.startswith(b"#")):
                lines.append(line)
        return lines, position

    def _names(self, line: bytes, schema: pa.Schema, path: str) -> list[str]:
        names = cast("list[str]", self._columns(line + b"\n", path).names)
        if self.strict and names != schema.names:
            raise BadRecord(
                f"The header names the columns {', '.join(names)}, not {', '.join(schema.names)}",
                where=path,
                remedy="Mend the header or the schema, or leave out set_strict_headers.",
            )
        _check_once([name for name in names if name in schema.names], path)
        odd = sorted(set(names) ^ set(schema.names))
        if odd and self.schema is None:
            raise BadRecord(
                f"The file has other columns than the first one: {', '.join(odd)}",
                where=path,
                remedy="Give a schema with the columns to read.",
            )
        return names

    def _quotes(self, *, closed: bool = False) -> Quotes | None:
        if self.quote_char is None:
            return None
        return Quotes(
            self.quote_char,
            self.delimiter,
            self.escape_char,
            closed=closed,
            comments=self.comments,
        )

    @property
    def _line_quotes(self) -> Quotes | None:
        """Quotes between which a line end ends no line."""
        return self._quotes() if self.newlines else None

    def _columns(self, block: bytes, path: str, *, skip: bool = False) -> pa.Schema:
        quotes = None if skip or self.newlines else self._quotes()
        if quotes is not None and quotes.beyond_lines(block)[0]:
            raise BadRecord(
                "A quoted value goes on behind the end of its line",
                where=path,
                remedy="Set newlines_in_values=True, or close the quotes in the file.",
            )
        parsing = self._parsing()
        if skip:
            parsing.invalid_row_handler = lambda _: "skip"
        return _look(lambda: pa_csv.read_csv(pa.py_buffer(block), parse_options=parsing), path)

    def _parsing(self) -> pa_csv.ParseOptions:
        return pa_csv.ParseOptions(
            delimiter=self.delimiter,
            newlines_in_values=self.newlines,
            quote_char=self.quote_char or False,
            escape_char=self.escape_char or False,
        )

    def _parser(self, names: list[str], schema: pa.Schema) -> Callable[[bytes], Rows]:
        texts = schema
        for name, _ in self.arrays:
            texts = texts.set(texts.get_field_index(name), pa.field(name, pa.string()))
        converting = pa_csv.ConvertOptions(
            column_types=texts, include_columns=schema.names, include_missing_columns=True
        )
        if self.null_value is not None:
            converting.null_values = [self.null_value]
            converting.strings_can_be_null = True
        parsing, quotes, line_quotes = self._parsing(), self._quotes(), self._line_quotes

        def parse(block: bytes) -> Rows:
            if self.comments and b"#" in block:
                block = _without_comments(block, line_quotes)
            if not block:
                return _one_batch(schema.empty_table())
            reading = pa_csv.ReadOptions(
                column_names=names, use_threads=False, block_size=len(block) + 1
            )
            table = pa_csv.read_csv(pa.py_buffer(block), reading, parsing, converting)
            if quotes is not None:
                _check_quotes(block, table.num_rows, quotes, newlines=self.newlines)
            return _one_batch(self._with_lists(table, schema))

        return parse

    def _with_lists(self, table: pa.Table, schema: pa.Schema) -> pa.Table:
        for name, separator in self.arrays:
            index = table.schema.get_field_index(name)
            texts = cast("list[str | None]", table.column(index).to_pylist())
            parts = [
                None if text is None else text.split(separator) if text else [] for text in texts
            ]
            lists = pa.array(parts, pa.list_(pa.string())).cast(schema.field(name).type)
            table = table.set_column(index, schema.field(name), lists)
        return table


def _without_comments(block: bytes, quotes: Quotes | None) -> bytes:
    shape = block if quotes is None else quotes.blanked(block)
    ends = accumulate(map(len, shape.splitlines(keepends=True)), initial=0)
    return b"".join(block[at:end] for at, end in pairwise(ends) if block[at : at + 1] != b"#")


def _check_quotes(block: bytes, rows: int, quotes: Quotes, *, newlines: bool) -> None:
    """Refuses what PyArrow reads as it happens to be cut into blocks."""
    if newlines:
        if quotes.beyond_lines(block)[1]:
            raise pa.ArrowInvalid("a quoted value does not end: close its quotes")
        return
    start = block.rfind(b"\n", 0, -1) + 1
    lines = block.count(b"\n", 0, start) + 1
    # A row for each line leaves room for an open value in the last one alone.
    if quotes.beyond_lines(block if rows < lines else block[start:])[0]:
        raise pa.ArrowInvalid(
            "a quoted value goes on behind the end of its line: set newlines_in_values=True if "
            "values hold line ends"
        )


def _check_once(names: Sequence[str], path: str) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadRecord(
            f"The header names the columns {', '.join(twice)} more than once",
            where=path,
            remedy="Give each column of the file a name of its own.",
        )


def schema_from(data: bytes | None) -> pa.Schema:
    assert data is not None, "a format that needs a schema has one, or its splits do"
    return pa.ipc.read_schema(pa.py_buffer(data))


def _blocks_of(lines: LineBlocks, split: FileSplit, start: int) -> Iterator[tuple[int, bytes]]:
    if split.offset is not None:
        return lines.from_line(split.offset, split.end)
    if start > split.start:
        return lines.from_line(start, split.end)  # behind the header
    return lines.from_part(start, split.end)


def _parsed(
    found: Iterator[tuple[int, bytes]],
    parse: Callable[[bytes], Rows],
    stores: Stores,
    split: FileSplit,
    *,
    skip: bool,
    quotes: Quotes | None = None,
) -> Iterator[Block]:
    done = split.rows
    for offset, data in found:
        block = _parsed_block(offset, data, parse, stores, split.path, skip=skip, quotes=quotes)
        first, done = min(done, len(block.rows)), max(0, done - len(block.rows))
        if not first:
            yield block
        elif first < len(block.rows):
            yield replace(block, rows=cast("Rows", block.rows)[first:], first=first)


def _parsed_block(
    offset: int,
    data: bytes,
    parse: Callable[[bytes], Rows],
    stores: Stores,
    path: str,
    *,
    skip: bool,
    quotes: Quotes | None,
) -> Block:
    try:
        return Block(offset, offset + len(data), parse(data))
    except _UNREADABLE:
        lines = lines_of(data, quotes=quotes)
        good, bad = _isolated(lines, parse)
    if bad and not skip:  # a mark of UTF-8 is bad within a block alone
        raise _bad_record(stores, path, offset, lines, bad[0])
    begins = list(accumulate(map(len, lines), initial=offset))
    letters = [DeadLetter(f"{path}, byte {begins[i]}", why, lines[i]) for i, why in bad]
    return Block(offset, offset + len(data), _joined(good), bad=tuple(letters))


def _isolated(
    lines: list[bytes], parse: Callable[[bytes], Rows]
) -> tuple[list[Rows], list[tuple[int, str]]]:
    """Rows of the readable lines; the unreadable lines, with their errors."""
    good: list[Rows] = []
    bad: list[tuple[int, str]] = []
    stretches = [(0, len(lines))] if lines else []
    while stretches:
        first, end = stretches.pop()
        try:
            good.append(parse(b"".join(lines[first:end])))
        except _UNREADABLE as error:
            if end - first == 1:
                bad.append((first, str(error)))
            else:
                middle = (first + end) // 2
                stretches += [(middle, end), (first, middle)]
    return good, bad


def _json_table(block: bytes, options: pa_json.ParseOptions | None = None) -> pa.Table:
    _check_objects(block)
    reading = pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    return pa_json.read_json(pa.py_buffer(block), reading, options)


def _check_objects(block: bytes) -> None:
    """Refuses what would crash pyarrow: deep nesting, and a leading ``null``.

    Raises RecursionError, or DecodeError for values that are not objects.
    """
    try:
        _OBJECTS.decode_lines(block)
    except msgspec.DecodeError:
        for name in _BEYOND_JSON:
            block = block.replace(name, b"0")
        _OBJECTS.decode_lines(block.removeprefix(BOM_UTF8))


def _readable(block: bytes) -> bytes:
    lines = lines_of(block)
    _, bad = _isolated(lines, lambda some: _one_batch(_json_table(some)))
    odd = {index for index, _ in bad}
    return b"".join(line for index, line in enumerate(lines) if index not in odd)


def _joined(parts: list[Rows]) -> Rows:
    if parts and isinstance(parts[0], pa.RecordBatch):
        return _one_batch(pa.Table.from_batches(parts))
    return list(chain.from_iterable(cast("list[list[object]]", parts)))


def _bad_record(
    stores: Stores, path: str, offset: int, lines: list[bytes], bad: tuple[int, str]
) -> BadRecord:
    index, reason = bad
    before = b"".join(lines[:index]).count(b"\n")
    number = line_number(stores, path, offset) + before
    text = lines[index].decode("utf-8", "replace").rstrip("\r\n")
    return BadRecord(
        f"Line {number} cannot be read: {reason}",
        where=f"{path}, line {number}: {shown(text)}",
        remedy="Mend it, give the schema, or skip and count such lines with .on_malformed('skip').",
    )


def _text_lines(block: bytes, charset: str) -> Rows:
    return [
        line.removesuffix("\r") for line in block.decode(charset).removesuffix("\n").split("\n")
    ]


def _json_lines(block: bytes) -> Rows:
    return cast("list[object]", msgspec.json.Decoder().decode_lines(block))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches: Sequence[pa.RecordBatch] = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays(
        [pa.array([], f.type) for f in table.schema], schema=table.schema
    )


def _first_block(stores: Stores, path: str, *, quotes: Quotes | None = None) -> bytes:
    with opened_text(stores, path) as stream:
        data = stream.read(_LOOK_BYTES)
    data = data.removeprefix(BYTE_ORDER_MARK)
    if len(data) < _LOOK_BYTES:
        return data
    lines = lines_of(data, quotes=quotes)
    return b"".join(lines[:-1]) or data


def _look(read: Callable[[], pa.Table], path: str) -> pa.Schema:
    try:
        schema = read().schema
        assert schema.names is not None, "names that are not text raise"
        return schema
    except _UNREADABLE as error:
        raise BadRecord(
            f"No columns can be found in the file: {error}",
            where=path,
            remedy="Mend the file, or give a schema; with a schema .on_malformed('skip') skips and "
            "counts lines that cannot be read.",
        ) from error


def _without_nulls(schema: pa.Schema) -> pa.Schema:
    """Treats columns without a value, or with odd text, in the first lines as text."""
    odd = (pa.null(), pa.binary())
    kinds = [pa.string() if field.type in odd else field.type for field in schema]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))
