"""What commands make of pickled state: data, unless somebody trusts those who wrote it.

A pickle runs code by naming it. Python tells of each name before it is looked up, so that one hook
covers every reader of state, whatever the snapshot holds. What the user's own program unpickles by
itself, such as a model, is none of the hook's business.
"""

from __future__ import annotations

import dataclasses
import sys
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import click

from tidegate.api.windows import Window
from tidegate.errors import UnpicklingRefused
from tidegate.typeinfo.row import Row

if TYPE_CHECKING:
    from collections.abc import Generator

_READERS: Final = frozenset({"tidegate.typeinfo.pickling", "tidegate.transport.codec"})
"""Modules that unpickle state."""

_DATA: Final = tuple(f"tidegate.{name}." for name in ("api", "connectors", "model", "typeinfo"))
"""Packages whose records and rows are data."""

_HARMLESS: Final = frozenset(
    {
        *(("builtins", name) for name in ("set", "frozenset", "bytearray", "complex", "range")),
        *(("collections", name) for name in ("OrderedDict", "deque")),
        *(("datetime", name) for name in ("date", "time", "datetime", "timedelta", "timezone")),
        ("tidegate.typeinfo.row", "Row.of_parts"),
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
    help="Unpickle state of any class. This runs code that the snapshot brings: only where you "
    "trust all who could write it.",
)


@contextmanager
def state_as_data(*, trusted: bool) -> Generator[None]:
    """In the block, state that names code raises UnpicklingRefused. trusted: it may."""
    shut = not trusted

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event != "pickle.find_class" or not shut:
            return
        reader = sys._getframe(1).f_globals  # pyright: ignore[reportPrivateUsage]  # it is documented
        if reader.get("__name__") in _READERS and not _is_data(*args):
            module, name = args
            raise UnpicklingRefused(
                f"The state names {module}.{name}, which is code; --unsafe-unpickle lets it run",
                remedy="Add --unsafe-unpickle if you trust all who could write the snapshot.",
            )

    if shut:
        sys.addaudithook(hook)
    try:
        yield
    finally:
        shut = False  # nobody can take the hook away


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
