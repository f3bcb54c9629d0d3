"""Chooses the form of the loops, and loads compiled ones from their folder.

The source is the same: `build` copies the modules of ``COMPILED`` into a package of another name,
which mypyc compiles, so that both forms may live in one process. The folder of compiled modules is
named after the interpreter, the platform and a hash of the source, and is looked for beside this
module and in the user's cache; so a stale one is never loaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from tidegate.errors import ConfigError
from tidegate.loops import calls, copies, joins, rows, tables, windows
from tidegate.loops.cells import KeyCell
from tidegate.model.settings import LoopForm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VARIABLE: Final = "TIDEGATE_LOOPS"
"""Environment variable with the form, where the option leaves it open."""

PACKAGE: Final = "tidegate_compiled"
COMPILED: Final = ("cells", "calls", "copies", "tables", "windows", "joins", "checks", "rows")
"""Modules that are compiled. They import each other and the standard library, and nothing else."""

_HERE: Final = Path(__file__).parent
_FORMAT: Final = "1"


@frozen
class Loops:
    """The loops in one form, as the modules of this room describe them.

    tuples_fit, scalars_fit: None where it is faster to look at the types of whole columns.
    list_values, map_values: None where a table's own functions are faster.
    fields_of_tuples, fields_of_dicts, fields_of_records: None where it is faster to do without.
    """

    form: LoopForm
    key_cell: type[KeyCell]
    user_call: type[calls.UserCall]
    results_of_rows: Callable[..., Iterator[object]]
    results_of_values: Callable[..., Iterator[object]]
    results_of_timers: Callable[..., Iterator[object]]
    draw_with_times: Callable[..., None]
    copier: type[copies.Copier]
    typed_reduce: Callable[..., Callable[[object, object], object]]
    immutable_values: Callable[..., Any]
    copied_values: Callable[..., Any]
    fold: Callable[..., None]
    accumulate: Callable[..., None]
    read_all: Callable[..., list[Any]]
    remove_all: Callable[..., None]
    window_call: type[windows.WindowCall]
    results_of_window: Callable[..., Iterator[object]]
    join_side: type[joins.JoinSide]
    results_of_pairs: Callable[..., Iterator[object]]
    dicts_of: Callable[[tuple[str, ...], list[list[Any]]], list[Any]]
    records_of: Callable[[type, tuple[str, ...], list[list[Any]]], list[Any]]
    tuples_fit: Callable[[list[Any], list[type]], bool] | None = None
    scalars_fit: Callable[[list[Any], type], bool] | None = None
    fields_of_tuples: Callable[..., list[rows.Field] | None] | None = None
    fields_of_dicts: Callable[..., list[rows.Field] | None] | None = None
    fields_of_records: Callable[..., list[rows.Field] | None] | None = None
    list_values: Callable[..., Any] | None = None
    map_values: Callable[..., Any] | None = None


INTERPRETED: Final = Loops(
    LoopForm.INTERPRETED,
    KeyCell,
    calls.UserCall,
    calls.results_of_rows,
    calls.results_of_values,
    calls.results_of_timers,
    calls.draw_with_times,
    copies.Copier,
    calls.TypedReduce,
    tables.ImmutableValues,
    tables.CopiedValues,
    tables.fold,
    tables.accumulate,
    tables.read_all,
    tables.remove_all,
    windows.WindowCall,
    windows.results_of_window,
    joins.JoinSide,
    joins.results_of_pairs,
    rows.dicts_of,
    rows.records_of,
)


@frozen
class Choice:
    """The form that runs in this process. why: one clause for people."""

    form: LoopForm
    why: str
    folder: Path | None


def choose(wanted: LoopForm = LoopForm.AUTO) -> Choice:
    """Chooses the form that runs here. Raises ConfigError for compiled loops that are not there."""
    asked = "the option"
    if wanted is LoopForm.AUTO:
        wanted, asked = _of_environment(), f"the variable {VARIABLE}"
    if wanted is LoopForm.INTERPRETED:
        return Choice(wanted, f"{asked} says so", None)
    folder = compiled_folder()
    if folder is not None:
        return Choice(LoopForm.COMPILED, f"they are in {folder}", folder)
    if wanted is LoopForm.COMPILED:
        places = " and ".join(str(each / tag()) for each in places_of_folders())
        raise ConfigError(
            f"there are no compiled loops, which {asked} asks for",
            where=f"Python {sys.version.split()[0]} at {sys.executable}; looked for {places}",
            remedy="Run 'tidegate compile' with this Python, or choose auto or interpreted.",
        )
    return Choice(LoopForm.INTERPRETED, "'tidegate compile' makes compiled ones", None)


def loops(wanted: LoopForm = LoopForm.AUTO) -> Loops:
    """The loops in a form. Raises ConfigError as `choose`."""
    choice = choose(wanted)
    return INTERPRETED if choice.folder is None else _compiled(choice.folder)


def loops_with(cell: KeyCell) -> Loops:
    """The loops in the form of a cell, which compiled ones reach into."""
    if type(cell) is KeyCell:
        return INTERPRETED
    return _loaded()


def loaded_loops() -> Loops:
    """Compiled loops where this process has loaded them, for what is the same in both forms."""
    return _loaded() if PACKAGE in sys.modules else INTERPRETED


def compiled_folder() -> Path | None:
    """Folder of the modules that were compiled from this very source for this very Python."""
    for place in places_of_folders():
        folder = place / tag()
        if folder.is_dir():
            return folder
    return None


def places_of_folders() -> list[Path]:
    """Where folders of compiled modules are, in the order of search."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    return [_HERE / "built", Path(cache) / "tidegate" / "loops"]


def tag() -> str:
    """Name of the folder: interpreter and platform, and a hash of the source."""
    digest = hashlib.sha256(_FORMAT.encode())
    for path in sources():
        digest.update(path.read_bytes())
    return f"{interpreter()}-{digest.hexdigest()[:16]}"


def interpreter() -> str:
    """Interpreter and platform that extension modules are for."""
    return str(sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag)


def sources() -> list[Path]:
    """Files that are compiled."""
    return [_HERE / f"{name}.py" for name in COMPILED]


def _of_environment() -> LoopForm:
    text = os.environ.get(VARIABLE, "").lower() or LoopForm.AUTO.value
    for form in LoopForm:
        if form.value == text:
            return form
    raise ConfigError(
        f"{text!r} is not a form of the loops",
        where=f"the environment variable {VARIABLE}",
        remedy=f"Use one of: {', '.join(form.value for form in LoopForm)}.",
    )


def _compiled(folder: Path) -> Loops:
    if PACKAGE not in sys.modules:
        load(folder)
    return _loaded()


def _loaded() -> Loops:
    return sys.modules[PACKAGE].loops


def load(folder: Path) -> None:
    """Import the compiled modules of a folder under their own package."""
    package = ModuleType(PACKAGE)
    package.__path__ = [str(folder / PACKAGE)]
    # What the modules share is a module of its own, which they import by its name.
    for shared in folder.glob("*__mypyc.*"):
        name = shared.name.partition(".")[0]
        spec = importlib.util.spec_from_file_location(name, shared)
        assert spec is not None and spec.loader is not None, f"{shared} is no extension module"
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    sys.modules[PACKAGE] = package
    of_cells, of_calls, of_copies, of_tables, of_windows, of_joins, of_checks, of_rows = (
        import_module(f"{PACKAGE}.{name}") for name in COMPILED
    )
    package.__dict__["loops"] = Loops(
        LoopForm.COMPILED,
        of_cells.KeyCell,
        of_calls.UserCall,
        of_calls.results_of_rows,
        of_calls.results_of_values,
        of_calls.results_of_timers,
        of_calls.draw_with_times,
        of_copies.Copier,
        of_calls.TypedReduce,
        of_tables.ImmutableValues,
        of_tables.CopiedValues,
        of_tables.fold,
        of_tables.accumulate,
        of_tables.read_all,
        of_tables.remove_all,
        of_windows.WindowCall,
        of_windows.results_of_window,
        of_joins.JoinSide,
        of_joins.results_of_pairs,
        of_rows.dicts_of,
        of_rows.records_of,
        of_checks.tuples_fit,
        of_checks.scalars_fit,
        of_rows.fields_of_tuples,
        of_rows.fields_of_dicts,
        of_rows.fields_of_records,
        of_tables.ListValues,
        of_tables.MapValues,
    )
