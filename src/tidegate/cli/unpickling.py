"""Treatment of pickled state by commands: as data, unless the user trusts its writer.

A pickle runs code by naming it. State is unpickled in one module, which has each name checked
before it is looked up, whatever the snapshot holds. The user's own program may unpickle whatever it
likes, such as a model.
"""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from enum import Enum
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import click

from flinkformat.row import Row
from tidegate.api.windows import Window
from tidegate.errors import UnpicklingRefused
from tidegate.typeinfo.pickling import names_checked

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_DATA: Final = tuple(f"tidegate.{name}." for name in ("api", "connectors", "model", "typeinfo"))
"""Packages whose records and rows are data."""

_HARMLESS: Final = frozenset(
    {
        *(("builtins", name) for name in ("set", "frozenset", "bytearray", "complex", "range")),
        *(("collections", name) for name in ("OrderedDict", "deque")),
        *(("datetime", name) for name in ("date", "time", "datetime", "timedelta", "timezone")),
        ("flinkformat.row", "Row.of_parts"),
        ("decimal", "Decimal"),
        ("fractions", "Fraction"),
        ("uuid", "UUID"),
    }
)
"""What makes data, and does nothing else."""

unsafe_unpickle = click.option(
    "--unsafe-unpickle",
    "trusted",
    is_flag=True,
    help="Unpickle state of any class. This runs code that the snapshot brings: use it only if you "
    "trust everyone who could have written it.",
)


def state_as_data(*, trusted: bool) -> AbstractContextManager[None]:
    """Within this block, state that names code raises UnpicklingRefused. trusted: allows it."""
    return nullcontext() if trusted else names_checked(_refuse_code)


def _refuse_code(module: str, name: str) -> None:
    if not _is_data(module, name):
        raise UnpicklingRefused(
            f"The state names {module}.{name}, which is code; --unsafe-unpickle lets it run",
            remedy="Add --unsafe-unpickle if you trust all who could write the snapshot.",
        )


def _is_data(module: str, name: str) -> bool:
    if (module, name) in _HARMLESS or not module.startswith(_DATA):
        return (module, name) in _HARMLESS
    try:
        found: object = attrgetter(name)(import_module(module))
    except (ImportError, AttributeError):
        return False
    return isinstance(found, type) and (
        dataclasses.is_dataclass(found) or issubclass(found, tuple | Enum | Row | Window)
    )
