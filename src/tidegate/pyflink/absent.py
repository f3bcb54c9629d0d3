"""Names of PyFlink that Tidegate cannot offer; using one raises an error that says so."""

from __future__ import annotations

from typing import NoReturn

from tidegate.errors import GraphError
from tidegate.pyflink import places


class Absent:
    """Replaces a class that Tidegate lacks; importing it is allowed, any use raises an error.

    remedy: what to use in its place.
    """

    def __init__(self, name: str, remedy: str) -> None:
        self._name = name
        self._remedy = remedy

    def __call__(self, *args: object, **named: object) -> NoReturn:
        self._refuse()

    def __mro_entries__(self, bases: tuple[object, ...]) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # asked by Python itself, which copes with its absence
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"<PyFlink's {self._name}, which Tidegate does not have>"

    def _refuse(self) -> NoReturn:
        raise GraphError(f"Tidegate does not have PyFlink's {self._name}", remedy=self._remedy)


def no_such_module(name: str) -> ModuleNotFoundError:
    """ModuleNotFoundError for a module of PyFlink that Tidegate lacks.

    Python's own class, since programs catch it if they can do without the module.
    """
    for known, remedy in places.ABSENT_MODULES.items():
        if f"{name}.".startswith(f"{known}."):
            return ModuleNotFoundError(
                f"Tidegate does not have PyFlink's module {name}. {remedy}", name=name
            )
    return ModuleNotFoundError(f"No module named {name!r}", name=name)
