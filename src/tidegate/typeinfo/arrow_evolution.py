"""Compatibility of Arrow types: can old columns be read as a new type? `evolution` for columns.

Wider numbers, finer times, other layouts of the same texts and bytes, and structs with added fields
(null in old values), removed ones or another order fit; all else does not.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

_is: Final = pa.types
_UNITS: Final = ("s", "ms", "us", "ns")


def arrow_faults(old: pa.DataType, new: pa.DataType) -> list[str]:
    """Reasons by field why values of the old type don't fit the new one; empty if they do."""
    faults: list[str] = []
    _compare(old, new, "", faults)
    return faults


def _compare(old: pa.DataType, new: pa.DataType, path: str, faults: list[str]) -> None:
    if old == new or _is_wider(old, new):
        return
    if _is.is_struct(old) and _is.is_struct(new):
        _compare_fields(old, new, path, faults)
    elif _is.is_map(old) and _is.is_map(new):
        _compare(old.key_type, new.key_type, f"{path}[key]", faults)
        _compare(old.item_type, new.item_type, f"{path}[value]", faults)
    elif _is_list(old) and _is_list(new):
        _compare(old.value_type, new.value_type, f"{path}[]", faults)
    else:
        faults.append(f"{path.lstrip('.') or 'the value'} was {old} and is {new}")


def _compare_fields(old: Any, new: Any, path: str, faults: list[str]) -> None:
    was = {field.name: field for field in old}
    for field in new:
        place = f"{path}.{field.name}"
        if field.name in was:
            _compare(was[field.name].type, field.type, place, faults)
        elif not field.nullable:
            faults.append(f"{place.lstrip('.')} is new and can't be null")


def _is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    for kind in (_is.is_integer, _is.is_floating):
        if kind(old) and kind(new):
            return bool(np.can_cast(old.to_pandas_dtype(), new.to_pandas_dtype(), "safe"))
    for kind in (_is.is_timestamp, _is.is_duration):
        if kind(old) and kind(new):
            zones = getattr(old, "tz", None), getattr(new, "tz", None)
            finer = _UNITS.index(old.unit) <= _UNITS.index(new.unit)
            return finer and zones[0] == zones[1]
    return (_is_text(old) and _is_text(new)) or (_is_binary(old) and _is_binary(new))


def _is_list(arrow: pa.DataType) -> bool:
    return _is.is_list(arrow) or _is.is_large_list(arrow)


def _is_text(arrow: pa.DataType) -> bool:
    return _is.is_string(arrow) or _is.is_large_string(arrow) or _is.is_string_view(arrow)


def _is_binary(arrow: pa.DataType) -> bool:
    return _is.is_binary(arrow) or _is.is_large_binary(arrow)
