"""Loads what slots need of Tidegate ahead, in a process that they are forked from."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import sys
import threading
from typing import TYPE_CHECKING, Final

from tidegate.errors import ConfigError
from tidegate.loops.forms import loops
from tidegate.transport.tcp import loop_factory

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

SLOT: Final = (
    *("encodings.ascii", "encodings.idna", "encodings.latin_1"),
    *("encodings.utf_16_be", "encodings.utf_16_le"),
    "tidegate.slot.process.serve",
    "tidegate.operators.map",
    "tidegate.operators.sources.source",
    "tidegate.operators.sinks.sink",
    "tidegate.connectors.collection",
    "tidegate.connectors.print",
)
"""What every slot loads, or nearly."""

WITH_ARROW: Final = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "tidegate.state.columns.columnar",
)
"""What a slot loads for batches; Arrow loads pandas, if that is there, to see what it is given."""

_ROOMS: Final = ("api", "connectors", "operators", "state", "typeinfo")
"""Rooms of which a slot loads those modules that the functions of its job lead to."""

_OF_PROGRAMS: Final = ("config", "datastream", "graph")
"""Rooms that a slot loads if functions are in a module that makes a program too."""

_ARROWS_JEMALLOC: Final = ("JE_ARROW_MALLOC_CONF", "background_thread:false")


def preload(modules: Iterable[str]) -> None:
    """Loads modules, the library of the event loop and compiled loops; forks share the memory.

    Raises ImportError for a module that is missing.
    """
    with _without_threads():
        for module in modules:
            importlib.import_module(module)
    loop_factory()
    with contextlib.suppress(ConfigError):  # which the slot of a job reports
        loops()
    gc.freeze()  # so that no collection of a slot touches, and thereby copies, what it shares


def preload_known(modules: Iterable[str]) -> None:
    """Loads modules, of which some may not be there; a slot that needs these says so."""
    with _without_threads():
        for module in modules:
            with contextlib.suppress(ImportError, OSError):  # such as without descriptors
                importlib.import_module(module)
    gc.freeze()


def reseed() -> None:
    """Reseeds NumPy in a fork, so that forks draw different numbers; Python reseeds by itself."""
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()


def modules_of_job() -> tuple[str, ...]:
    """Modules that this program has loaded and its slots are likely to load."""
    return _loaded(_ROOMS)


def modules_of_program() -> tuple[str, ...]:
    """Modules that slots load if the program's functions are in a module, or if it has batches."""
    return (*_loaded(_OF_PROGRAMS), *(WITH_ARROW if "pyarrow" in sys.modules else ()))


def modules_of_any_job() -> Generator[str]:
    """All modules that slots may load, whatever the program."""
    for room in (*_ROOMS, *_OF_PROGRAMS):
        package = importlib.import_module(f"tidegate.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield module.name


def _loaded(rooms: Iterable[str]) -> tuple[str, ...]:
    prefixes = tuple(f"tidegate.{room}." for room in rooms)
    return tuple(name for name in sys.modules if name.startswith(prefixes))


@contextlib.contextmanager
def _without_threads() -> Generator[None]:
    """Sees to it that nothing runs beside this process, as a fork would copy it half done.

    OpenBLAS, which comes with NumPy, ends its threads before each fork. Arrow has a thread that
    tidies up heaps of an allocator that it does not use by default; there it tidies up by itself.
    """
    name, value = _ARROWS_JEMALLOC
    told = name in os.environ
    if not told:
        os.environ[name] = value
    try:
        yield
    finally:
        if not told:
            del os.environ[name]
    assert threading.active_count() == 1, f"loading started threads: {threading.enumerate()}"
