"""Messages, lines and settings: what people and other programs write."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tests.fuzzing.cases import Opened, Reader
from tidegate.config.load import read_dynamic, read_file
from tidegate.connectors.files.lines import END
from tidegate.connectors.files.splits import FileSplit
from tidegate.connectors.files.text import CsvFormat, JsonFormat, TextFormat
from tidegate.connectors.schemas.csv_rows import CsvRowDeserializationSchema
from tidegate.connectors.schemas.json_rows import JsonRowDeserializationSchema, type_of_json_schema
from tidegate.connectors.schemas.messages import JsonSchema, SimpleStringSchema
from tidegate.errors import BadRecord, ConfigError
from tidegate.storage.stores import Stores
from tidegate.typeinfo.types import RowTypeInfo, Types

if TYPE_CHECKING:
    from tidegate.connectors.files.splits import FileFormat


def readers_of_texts() -> list[Reader]:
    """A bad message is a ValueError, a bad setting a ConfigError."""
    bad, unusable = (ValueError,), (ConfigError,)
    deep = (*bad, RecursionError)
    return [
        Reader("text messages", _strings, bad, text=True),
        Reader("JSON messages", _json, deep, text=True),
        Reader("JSON rows", lambda: _json_rows(strict=True), deep, text=True),
        Reader("JSON rows, errors passed over", lambda: _json_rows(strict=False), deep, text=True),
        Reader("CSV rows", lambda: _csv_rows(strict=True), bad, text=True),
        Reader("CSV rows, errors passed over", lambda: _csv_rows(strict=False), (), text=True),
        Reader("lines of files", lambda: _files(skip=False), (BadRecord,), text=True),
        Reader("lines of files, bad ones told", lambda: _files(skip=True), (BadRecord,), text=True),
        Reader("JSON schemas", _json_schemas, unusable, text=True),
        Reader("settings from a file", _settings_file, unusable, text=True),
        Reader("settings from arguments", _settings_arguments, unusable, text=True),
    ]


def row_type() -> RowTypeInfo:
    """A field of each type that JSON and CSV know."""
    fields = {
        "id": Types.LONG(),
        "small": Types.SHORT(),
        "name": Types.STRING(),
        "price": Types.BIG_DEC(),
        "big": Types.BIG_INT(),
        "rate": Types.DOUBLE(),
        "yes": Types.BOOLEAN(),
        "raw": Types.PRIMITIVE_ARRAY(Types.BYTE()),
        "day": Types.SQL_DATE(),
        "time": Types.SQL_TIME(),
        "at": Types.SQL_TIMESTAMP(),
        "tags": Types.LIST(Types.LONG()),
    }
    found = Types.ROW_NAMED(list(fields), list(fields.values()))
    assert isinstance(found, RowTypeInfo)
    return found


_JSON_ROW = (
    b'{"id":7,"small":3,"name":"a \\u00e9","price":1.25,"big":123456789012345678901234567890,'
    b'"rate":1e-3,"yes":true,"raw":"aGVsbG8=","day":"2024-02-29","time":"23:59:59.5",'
    b'"at":"2024-02-29T12:00:00","tags":[1,2,null],"more":{"x":[{}]}}'
)
_CSV_ROW = (
    b'7,3,"a, ""b""",1.25,123456789012345678901234567890,1e-3,true,aGVsbG8=,2024-02-29,'
    b"23:59:59.5,2024-02-29T12:00:00,1;2;3"
)


def _strings() -> Opened:
    schemas = [SimpleStringSchema(charset) for charset in ("UTF-8", "utf-16", "latin-1", "ascii")]
    seeds = ["a text, \u4e2d".encode(), "a text".encode("utf-16"), b"\xe9t\xe9", b"plain"]
    return Opened(seeds, lambda index, data: schemas[index].deserialize(data))


def _json() -> Opened:
    return Opened(
        [_JSON_ROW, b"[1, 2.5, null, {}]"], lambda _, data: JsonSchema().deserialize(data)
    )


def _json_rows(*, strict: bool) -> Opened:
    builder = JsonRowDeserializationSchema.builder().type_info(row_type())
    builder = builder.fail_on_missing_field() if strict else builder.ignore_parse_errors()
    schema = builder.build()
    seeds = [_JSON_ROW, b'{"id":1}', b"null"]
    return Opened(seeds, lambda _, data: schema.deserialize(data))


def _csv_rows(*, strict: bool) -> Opened:
    of = row_type()
    schemas = [
        CsvRowDeserializationSchema.Builder(of).set_ignore_parse_errors(not strict).build(),
        CsvRowDeserializationSchema.Builder(of)
        .set_field_delimiter("\t")
        .set_escape_character("\\")
        .set_null_literal("null")
        .set_allow_comments(True)
        .set_ignore_parse_errors(not strict)
        .build(),
    ]
    seeds = [_CSV_ROW, _CSV_ROW.replace(b",", b"\t")]
    return Opened(seeds, lambda index, data: schemas[index].deserialize(data))


_LINES = b'{"n": 1, "text": "a", "of": [1.5, null]}\n{"n": NaN}\n{"n": 3, "more": {"x": {}}}\n'
_CSV = b'n,text,day\n1,"a, ""b""",2024-02-29\n2,,\n-3,\xc3\xa9,1970-01-01\n'


def _files(*, skip: bool) -> Opened:
    """A file is looked at for its columns, and read with them."""
    folder = tempfile.TemporaryDirectory(prefix="tidegate-fuzz-")
    file = Path(folder.name, "lines")
    schema = pa.schema([("n", pa.float64()), ("text", pa.string())]).serialize().to_pybytes()
    formats: list[tuple[bytes, FileFormat]] = [
        (_LINES, TextFormat(skip=skip)),
        (_LINES, JsonFormat(skip=skip)),
        (_LINES, JsonFormat(skip=skip, arrow=True)),
        (_LINES, JsonFormat(skip=skip, arrow=True, schema=schema)),
        (_CSV, CsvFormat(skip=skip)),
        (_CSV, CsvFormat(skip=skip, schema=schema)),
        (_CSV, CsvFormat(skip=skip, newlines=True)),
    ]
    stores = Stores()

    def read(index: int, data: bytes) -> None:
        assert folder, "kept as long as it is written to"
        file.write_bytes(data)
        chosen = formats[index][1]
        found = chosen.schema_of(stores, str(file))
        columns = None if found is None else found.serialize().to_pybytes()
        for block in chosen.blocks(stores, FileSplit(str(file), 0, END, schema=columns)):
            assert skip or not block.bad

    return Opened([seed for seed, _ in formats], read)


def _json_schemas() -> Opened:
    seeds = [
        b'{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":["null","string"]},'
        b'"c":{"type":"array","items":{"type":"number"}},"d":{"$ref":"#/definitions/x"}},'
        b'"definitions":{"x":{"oneOf":[{"type":"null"},{"type":"string","format":"date"}]}}}',
        b'{"type":"object","properties":{"a":{"$ref":"#"}}}',
    ]
    return Opened(seeds, lambda _, data: type_of_json_schema(data.decode("utf-8", "replace")))


_SETTINGS = (
    b"execution.checkpointing.interval: 1 s\n",
    b"execution:\n  checkpointing:\n    dir: /tmp/c\n    unaligned: {enabled: true}\n",
    b"pipeline:\n  name: null\n  global-job-parameters: {a: 1, b: x}\n",
    b"restart-strategy: {type: fixed-delay, fixed-delay: {attempts: 3, delay: 10 ms}}\n",
    b"state.backend.rocksdb.memory.fixed-per-slot: 64 mb\nmy.list: [a, b]\n",
    b"a: &x {b: 1}\nc: *x\nd: &y [*x, *x]\ne: [*y, *y]\n",
    b"# nothing\n",
)


def _settings_file() -> Opened:
    folder = tempfile.TemporaryDirectory(prefix="tidegate-fuzz-")
    file = Path(folder.name, "tidegate.yaml")

    def read(_: int, data: bytes) -> None:
        file.write_bytes(data)
        assert folder, "kept as long as it is written to"
        read_file(file)

    return Opened(_SETTINGS, read)


def _settings_arguments() -> Opened:
    seeds = [
        b"execution.checkpointing.interval=1 s",
        b"pipeline.global-job-parameters=a:1,b:2",
        b"state.backend.rocksdb.memory.fixed-per-slot=64 mb",
        b"restart-strategy.type=exponential-delay",
        b"restart-strategy.exponential-delay.jitter-factor=0.1",
        b"state.backend.type=rocksdb",
    ]
    return Opened(seeds, lambda _, data: read_dynamic([data.decode("utf-8", "replace")]))
