"""The import hook: makes the modules of ``pyflink`` when they are first named.

A module gives a name from its list in `places` when it is asked for it; nothing of Tidegate is
imported before. The installation shows in ``sys.meta_path`` and ``sys.modules`` alone. Names that
Tidegate cannot offer raise an error that says so once they are used."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tidegate.errors import GraphError
from tidegate.pyflink import places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

_ROOT: Final = "pyflink"


def put_in_place() -> None:
    """Makes ``pyflink`` importable, before any other package of that name; may be repeated."""
    if not is_installed():
        sys.meta_path.insert(0, _PyFlinkFinder())


def uninstall() -> None:
    """Removes ``pyflink`` from imports; names that were imported stay usable."""
    if not is_installed():
        return
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _PyFlinkFinder)]
    for name in [name for name in sys.modules if name.partition(".")[0] == _ROOT]:
        del sys.modules[name]


def is_installed() -> bool:
    """True if ``import pyflink`` gives Tidegate's classes."""
    return any(isinstance(finder, _PyFlinkFinder) for finder in sys.meta_path)


class _PyFlinkFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != _ROOT:
            return None
        if fullname not in places.MODULES:
            raise no_such_module(fullname)
        package = any(name.startswith(f"{fullname}.") for name in places.MODULES)
        return ModuleSpec(fullname, _PyFlinkLoader(), is_package=package)


class _PyFlinkLoader(Loader):
    def exec_module(self, module: ModuleType) -> None:
        # Errors about a name name the file; it shows whose module this is.
        module.__file__ = str(Path(__file__).with_name("places.py"))
        names = places.MODULES[module.__name__]
        vars(module).update(
            __all__=list(names),
            __dir__=lambda: sorted({*vars(module), *names}),
            __getattr__=_names_of(module),
        )


def _names_of(module: ModuleType) -> Callable[[str], object]:
    def named(name: str) -> object:
        found = find(name)
        setattr(module, name, found)  # functions ask for it with every record
        return found

    def find(name: str) -> object:
        if name in places.ABSENT:
            return Absent(name, places.ABSENT[name])
        place = places.place_of(name)
        if place is None:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        room, attribute = place
        return getattr(import_module(room), attribute)

    return named


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
