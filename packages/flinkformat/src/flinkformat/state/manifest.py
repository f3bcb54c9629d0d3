"""Checks that the files of a RocksDB folder belong together, without opening RocksDB.

``CURRENT`` names the manifest, whose records say which ``.sst`` files there are and how large they
are; each of these ends in a footer, which says where its index is. So one that was swapped, cut or
left out is found even where no checksum of it is known, and RocksDB, which may end the process or
wait for ever over damaged files, never opens it.

Source: RocksDB's log format (blocks of 32 KiB, records with a masked crc32c), version edits and
the footer of block-based tables.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, Final

from google_crc32c import value as crc32c

from flinkformat.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

CURRENT: Final = "CURRENT"
_SST: Final = ".sst"
_SST_END: Final = bytes.fromhex("f7cff485b741e288")
_FOOTER_BYTES: Final = 53
_FOOTER_HANDLES: Final = slice(1, 41)
_FOOTER_HAS_CHECKSUM: Final = 6
_BLOCK_TRAILER_BYTES: Final = 5
_CURRENT_BYTES_MAX: Final = 255

_BLOCK: Final = 32 * 1024
_RECORD: Final = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4

_DELETED_FILE: Final = 6
_NEW_FILE: Final = 103
_LENGTH_PREFIXED: Final = frozenset({1, 201})
_NUMBERS: Final = frozenset({2, 3, 4, 9, 10, 200, 203, 300})
_ENDS_FIELDS: Final = 1
_MAY_BE_PASSED: Final = 1 << 13


def check_folder(folder: Path, where: str) -> None:
    """Checks a folder that RocksDB will open. Raises FormatError. where: names the state."""
    sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
    current = _beginning(folder / CURRENT) if CURRENT in sizes else b""
    name = manifest_name(current, sizes, where)
    live = live_files((folder / name).read_bytes(), f"{where}, {name}")
    found = sst_sizes(sizes)
    if live is not None and any(found.get(number) != size for number, size in live.items()):
        raise other_files({n: found[n] for n in live if n in found}, live, f"{where}, {name}")
    for file in folder.glob(f"*{_SST}"):
        _check_end(file, sizes[file.name], f"{where}, {file.name}")


def _check_end(table: Path, size: int, where: str) -> None:
    """Checks the footer, since RocksDB aborts over wrong numbers in those of versions up to 5."""
    begin = max(0, size - _FOOTER_BYTES)
    with table.open("rb") as stream:
        stream.seek(begin)
        footer = stream.read()
    if len(footer) < _FOOTER_BYTES or not footer.endswith(_SST_END):
        raise _damaged_table(where, begin, f"a footer that ends in {_SST_END.hex()}", footer[-8:])
    version = int.from_bytes(footer[_FOOTER_HANDLES.stop : -len(_SST_END)], "little")
    if version >= _FOOTER_HAS_CHECKSUM:
        return
    handles = list(islice(_numbers(footer[_FOOTER_HANDLES]), 4))
    ends = [sum(handles[:2]), sum(handles[2:])]
    if len(handles) < 4 or max(ends) + _BLOCK_TRAILER_BYTES > begin:
        raise _damaged_table(
            where, begin, f"blocks that end in front of byte {begin}", footer[_FOOTER_HANDLES]
        )


def _numbers(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


def _damaged_table(where: str, offset: int, expected: str, found: bytes) -> FormatError:
    return FormatError(
        "A table of the database is damaged at its end",
        where=where,
        remedy="Restore from another checkpoint; this one is damaged.",
        offset=offset,
        expected=expected,
        found=found.hex(),
    )


def _beginning(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(_CURRENT_BYTES_MAX)


def manifest_name(current: bytes, names: Collection[str], where: str) -> str:
    """Name of the manifest in ``CURRENT``. Raises FormatError if there is no such file."""
    name = current.decode("ascii", "replace").rstrip("\n")
    if name not in names:
        raise FormatError(
            "The database names no manifest that is there",
            where=where,
            expected="CURRENT with the name of a file",
            found=repr(name[:40]),
        )
    return name


def sst_sizes(sizes: Mapping[str, int]) -> dict[int, int]:
    """Sizes of tables by number. sizes: of all files, by name."""
    return {_number(name): size for name, size in sizes.items() if name.endswith(_SST)}


def other_files(found: dict[int, int], live: dict[int, int], where: str) -> FormatError:
    """Error for a manifest that names other tables than there are."""
    return FormatError(
        "The manifest of the database names other files than the snapshot",
        where=where,
        expected=_told(live, found),
        found=_told(found, live),
    )


def _number(name: str) -> int:
    stem = name.removesuffix(_SST)
    return int(stem) if stem.isdecimal() else -1


def _told(files: dict[int, int], others: dict[int, int]) -> str:
    differing = [
        f"{number:06}{_SST} of {size} bytes"
        for number, size in sorted(files.items())
        if others.get(number) != size
    ]
    return ", ".join(differing[:3]) or "no more"


def live_files(manifest: bytes, where: str) -> dict[int, int] | None:
    """Number and size of the live files in a manifest; None for one of another RocksDB."""
    live: dict[int, int] = {}
    for record in _records(manifest, where):
        edit = _Edit(record, where)
        if not edit.known:
            return None
        # A file that is moved to another level is deleted and added in one edit.
        for number in edit.deleted:
            live.pop(number, None)
        live.update(edit.added)
    return live


def _records(log: bytes, where: str) -> Iterator[bytes]:
    record, position = b"", 0
    while position < len(log):
        left = _BLOCK - position % _BLOCK
        if left < _RECORD.size:
            position += left
            continue
        if len(log) - position < _RECORD.size:
            raise _damaged(where, position)
        masked, size, kind = _RECORD.unpack_from(log, position)
        begin = position + _RECORD.size
        payload = log[begin : begin + size]
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or len(payload) < size:
            raise _damaged(where, position)
        if masked != _mask(crc32c(bytes([kind]) + payload)):
            raise _damaged(where, position)
        record = payload if kind in (_FULL, _FIRST) else record + payload
        if kind in (_FULL, _LAST):
            yield record
        position = begin + size


def _mask(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class _Edit:
    """One record of a manifest: added files with their sizes, and deleted files.

    known: whether it has none but fields that are known here.
    """

    def __init__(self, record: bytes, where: str) -> None:
        self._record = record
        self._position = 0
        self._where = where
        self.added: dict[int, int] = {}
        self.deleted: list[int] = []
        self.known = True
        while self.known and self._position < len(record):
            self._field(self._varint())

    def _field(self, tag: int) -> None:
        if tag in _NUMBERS:
            self._varint()
        elif tag in _LENGTH_PREFIXED or tag & _MAY_BE_PASSED:
            self._skip()
        elif tag == _DELETED_FILE:
            self._varint()
            self.deleted.append(self._varint())
        elif tag == _NEW_FILE:
            self._new_file()
        else:
            self.known = False

    def _new_file(self) -> None:
        self._varint()
        number = self._varint()
        self.added[number] = self._varint()
        self._skip()
        self._skip()
        self._varint()
        self._varint()
        while self._varint() != _ENDS_FIELDS:
            self._skip()

    def _skip(self) -> None:
        size = self._varint()
        self._position += size

    def _varint(self) -> int:
        value = shift = 0
        while self._position < len(self._record):
            byte = self._record[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
        raise _damaged(self._where, self._position)


def _damaged(where: str, offset: int) -> FormatError:
    return FormatError("The manifest of the database is damaged", where=where, offset=offset)
