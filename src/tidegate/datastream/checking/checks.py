"""Checks of calls at the time of the call, so that its line is in the traceback."""

from __future__ import annotations

import dis
import inspect
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeGuard

from flinkformat.key_groups import PARALLELISM_MAX, check_parallelism
from tidegate.api.functions import (
    CheckpointedFunction,
    FilterFunction,
    Function,
    KeySelector,
    MapFunction,
    ReduceFunction,
    SinkFunction,
)
from tidegate.api.functions.async_functions import AsyncFunction
from tidegate.api.output_tag import OutputTag
from tidegate.api.rows.batches import shown
from tidegate.api.sink import Sink
from tidegate.api.watermarks import WatermarkStrategy
from tidegate.errors import GraphError, with_article
from tidegate.model.ids import OperatorId

if TYPE_CHECKING:
    from tidegate.graph.transformations import OperatorTransformation
    from tidegate.typeinfo.types import TypeInformation

_HASH: Final = re.compile("[0-9a-fA-F]{32}")
_OF_ONE_RESULT: Final = {MapFunction, FilterFunction, KeySelector, ReduceFunction, SinkFunction}


def check_function(given: object, kind: type[Function], call: str) -> None:
    """Raises GraphError unless it is a function object of that kind, or a plain callable."""
    if isinstance(given, kind):
        _check_complete(given, call)
        for method in _abstract(kind):
            _check_returns_at_once(getattr(given, method), kind, call)
        _check_awaits_nothing(given, kind, call)
        return
    if isinstance(given, Function) or not callable(given) or _is_function_class(given):
        raise _unfit(given, f"{with_article(kind)} or a plain function", call)
    _check_returns_at_once(given, kind, call)


def _check_returns_at_once(function: object, kind: type[Function], call: str) -> None:
    """Raises GraphError for a coroutine function, and for a generator function of one result."""
    name = getattr(function, "__qualname__", type(function).__name__)
    if kind is not AsyncFunction and _is_async(function):
        raise GraphError(
            f"{call} takes a plain function, and {name} is an `async def`",
            where=call,
            remedy="Give it to AsyncDataStream.unordered_wait or ordered_wait, or make it a `def`.",
        )
    if kind in _OF_ONE_RESULT and inspect.isgeneratorfunction(function):
        raise GraphError(
            f"{call} takes a function with one result, and {name} is a generator function",
            where=call,
            remedy="Use flat_map for any number of results, or return in place of yield.",
        )


def _check_awaits_nothing(given: Function, kind: type[Function], call: str) -> None:
    """Raises GraphError for a method of a function object that is called but never awaited."""
    if kind is AsyncFunction:
        return
    for name in dir(kind):
        if not name.startswith("_") and _is_async(getattr(given, name)):
            raise GraphError(
                f"{call} takes a function of plain methods, and {type(given).__name__}.{name} is "
                "an `async def`, which is not awaited",
                where=call,
                remedy="Make it a `def`; calls of services go to AsyncDataStream.unordered_wait or "
                "ordered_wait.",
            )


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def check_decides(given: object) -> None:
    """Raises GraphError for a filter function that returns nothing: no record would ever pass."""
    function = getattr(given, "filter", given)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None or code.co_flags & inspect.CO_GENERATOR:
        return
    steps = list(dis.get_instructions(code))
    returned = [
        _returned(before, step)
        for before, step in pairwise(steps)
        if step.opname in ("RETURN_VALUE", "RETURN_CONST")
    ]
    if returned and all(value is None for value in returned):
        name = getattr(function, "__qualname__", function)
        raise GraphError(
            f"filter takes a function that says which records pass, and {name} returns nothing",
            where="filter",
            remedy="Return the condition: `return record > 0`.",
        )


def _returned(before: dis.Instruction, step: dis.Instruction) -> object:
    """The constant that a step returns; itself if it may return something else."""
    if step.opname == "RETURN_CONST":
        return step.argval
    # A jump to the step brings another value along, as in `return found or None`.
    is_constant = before.opname == "LOAD_CONST" and not step.is_jump_target
    return before.argval if is_constant else step


def check_batch_function(given: object, kind: type[Function], call: str, form: str) -> None:
    """Works as `check_function`; also raises GraphError for an unavailable form of batches."""
    from tidegate.operators.arrow import check_form

    check_function(given, kind, call)
    check_form(form, call)


def check_function_object(
    given: object, kind: type[Function], call: str, *, otherwise: str
) -> None:
    """Raises GraphError unless it is a function object of that kind; otherwise: the remedy."""
    if not isinstance(given, kind):
        raise _unfit(given, with_article(kind), call, otherwise)
    _check_complete(given, call)
    _check_awaits_nothing(given, kind, call)


def _check_complete(given: Function, call: str) -> None:
    kind = type(given)
    missing = _abstract(kind)
    if missing:
        raise GraphError(
            f"{kind.__name__} has no {' and no '.join(missing)} of its own",
            where=call,
            remedy="Write it; one that does nothing returns None.",
        )


def _abstract(kind: type) -> list[str]:
    return [n for n in dir(kind) if getattr(getattr(kind, n), "__isabstractmethod__", False)]


def has_state(function: object) -> bool:
    """True if a function has operator state, which a restore looks up by the step's id."""
    return isinstance(function, CheckpointedFunction)


def _unfit(given: object, wanted: str, call: str, otherwise: str = "") -> GraphError:
    if _is_function_class(given):
        return GraphError(
            f"{call} takes {wanted}, and {given.__name__} is a class",
            where=call,
            remedy=f"Make an object of it: {call}({given.__name__}()).",
        )
    return GraphError(
        f"{call} takes {wanted}, not {type(given).__name__}",
        where=call,
        remedy=otherwise or f"Pass {wanted}.",
    )


def _takes(call: str, wanted: str, given: object, remedy: str) -> GraphError:
    return GraphError(f"{call} takes {wanted}, not {shown(given)}", where=call, remedy=remedy)


def _is_function_class(given: object) -> TypeGuard[type[Function]]:
    return isinstance(given, type) and issubclass(given, Function)


def check_never_opened(given: Function, call: str) -> None:
    """Raises GraphError if a function that runs in a key exchange counts on ``open``."""
    if type(given).open is not Function.open:
        raise GraphError(
            f"{type(given).__name__}.open is never called in {call}",
            where=call,
            remedy="Prepare what it needs in its constructor, or at its first call.",
        )


def check_strategy(given: object, call: str, *, can_rest: bool) -> None:
    """Raises GraphError for what is no watermark strategy, or is of no use there.

    can_rest: whether reading can be held back, as only a source can.
    """
    if not isinstance(given, WatermarkStrategy):
        raise GraphError(
            f"{call} takes a WatermarkStrategy, not {type(given).__name__}",
            where=call,
            remedy="Begin with WatermarkStrategy.for_monotonous_timestamps() or another of its "
            "static methods.",
        )
    if given.alignment is not None and not can_rest:
        raise GraphError(
            f"{call} cannot hold back its input, so watermark alignment has no effect there",
            where=f"{call}, group '{given.alignment.group}'",
            remedy="Give the strategy with alignment to from_source.",
        )


def check_text(given: object, call: str) -> None:
    if not isinstance(given, str) or not given:
        raise _takes(call, "a text", given, f'Write {call}("...").')


def check_name_of_job(given: object, call: str) -> None:
    """Raises GraphError for non-text in a call that takes the name of the job first."""
    if given is not None and (not isinstance(given, str) or not given):
        remedy = f'Write {call}("..."), or leave it out; a limit is given by its name, limit=2.'
        raise _takes(call, "the name of the job, a text", given, remedy)


def check_plain_function(given: object, call: str) -> None:
    """Raises GraphError for anything but a plain function of one result."""
    if not callable(given) or isinstance(given, Function) or _is_function_class(given):
        raise _unfit(given, "a plain function", call)
    _check_returns_at_once(given, MapFunction, call)


def check_whole_number(given: object, call: str, least: int | None = None) -> None:
    """Raises GraphError for anything but a whole number, or for one below the minimum."""
    number = given if isinstance(given, int) and not isinstance(given, bool) else None
    if number is None and least is None:
        raise _takes(call, "a whole number", given, "Give an int.")
    if number is None or (least is not None and number < least):
        raise _takes(call, f"a whole number, {least} or more", given, f"Give {least} or more.")


def check_sink(given: object, call: str) -> None:
    if isinstance(given, type) or not isinstance(given, Sink):
        raise _takes(
            call,
            "a sink",
            given,
            "Give one of tidegate.connectors, such as FileSink.parquet(path), or an object with "
            "`writer` and `committer`; a function goes to add_sink.",
        )


def check_source(given: object, call: str) -> None:
    has_halves = all(callable(getattr(given, half, None)) for half in ("enumerator", "reader"))
    if isinstance(given, type) or not has_halves:
        raise _takes(
            call,
            "a source",
            given,
            "Give one of tidegate.connectors, such as FileSource.csv(path), or an object with "
            "`enumerator` and `reader`; values go to from_collection.",
        )


def check_name_of_source(given: object) -> None:
    if not isinstance(given, str):
        raise _takes("source_name", "a text", given, 'Write "orders", or leave it out.')


def check_stream(given: object, kind: type | tuple[type, ...], call: str) -> None:
    if not isinstance(given, kind):
        if hasattr(given, "key_by"):
            raise _takes(call, "a keyed stream", given, "Call key_by on it first.")
        remedy = "Make one of it first, such as with env.from_collection."
        raise _takes(call, "a stream", given, remedy)


def check_tag(given: object, call: str) -> None:
    if not isinstance(given, OutputTag):
        raise GraphError(
            f"{call} takes an OutputTag, not {given!r}",
            where=call,
            remedy='Make one, such as OutputTag("late"), and use it in both places.',
        )


def check_key_type(key_type: TypeInformation | None, call: str) -> None:
    """Raises UnsupportedKey for a declared type without a hash that is stable across processes."""
    if key_type is not None:
        from tidegate.typeinfo.key_hash import KeyHasher

        KeyHasher(key_type, PARALLELISM_MAX, where=call)


def set_parallelism(made: OperatorTransformation, parallelism: int) -> None:
    check_parallelism(parallelism)
    placement = made.placement
    if placement.most is not None and parallelism > placement.most:
        raise GraphError(
            f"The parallelism of non parallel operator must be 1, not {parallelism}",
            where=f"operator '{made.name}'",
            remedy="Remove set_parallelism here; the next step may have its own.",
        )
    placement.parallelism, placement.is_set = parallelism, True


def set_max_parallelism(made: OperatorTransformation, max_parallelism: int) -> None:
    check_parallelism(1, max_parallelism)
    made.placement.max_parallelism = max_parallelism


def set_uid_hash(made: OperatorTransformation, uid_hash: str) -> None:
    """Set the id under which an operator's state is looked up first. Raises GraphError."""
    if not _HASH.fullmatch(uid_hash):
        raise GraphError(
            "Node hash must be a 32 character String that describes a hex code. Found: "
            f"{uid_hash!r}",
            where=f"operator '{made.name}'",
            remedy="Take the id from the log or from the checkpoint.",
        )
    made.state.uid_hash = OperatorId(bytes.fromhex(uid_hash))
