"""What is found wrong with a call while it is made, so that its line is in the traceback."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeGuard

from tidegate.api.functions import CheckpointedFunction, Function
from tidegate.api.output_tag import OutputTag
from tidegate.api.watermarks import WatermarkStrategy
from tidegate.errors import GraphError
from tidegate.model.ids import OperatorId
from tidegate.model.key_groups import PARALLELISM_MAX, check_parallelism

if TYPE_CHECKING:
    from tidegate.graph.transformations import OperatorTransformation
    from tidegate.typeinfo.types import TypeInformation

_HASH: Final = re.compile("[0-9a-fA-F]{32}")


def check_function(given: object, kind: type[Function], call: str) -> None:
    """Raises GraphError unless it is a function object of that kind, or a plain callable."""
    if isinstance(given, kind):
        _check_complete(given, call)
        return
    if isinstance(given, Function) or not callable(given) or _is_function_class(given):
        raise _unfit(given, f"a {kind.__name__} or a plain function", call)


def check_batch_function(given: object, kind: type[Function], call: str, form: str) -> None:
    """As `check_function`; also raises GraphError for a form of batches that can't be had."""
    from tidegate.operators.frames import check_form

    check_function(given, kind, call)
    check_form(form, call)


def check_function_object(
    given: object, kind: type[Function], call: str, *, otherwise: str
) -> None:
    """Raises GraphError unless it is a function object of that kind; otherwise: the remedy."""
    if not isinstance(given, kind):
        raise _unfit(given, f"a {kind.__name__}", call, otherwise)
    _check_complete(given, call)


def _check_complete(given: Function, call: str) -> None:
    kind = type(given)
    missing = [n for n in dir(kind) if getattr(getattr(kind, n), "__isabstractmethod__", False)]
    if missing:
        raise GraphError(
            f"{kind.__name__} has no {' and no '.join(missing)} of its own",
            where=call,
            remedy="Write it; one that does nothing returns None.",
        )


def has_state(function: object) -> bool:
    """Whether a function has operator state, which a restore looks up by the step's id."""
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


def _is_function_class(given: object) -> TypeGuard[type[Function]]:
    return isinstance(given, type) and issubclass(given, Function)


def check_never_opened(given: Function, call: str) -> None:
    """Raises GraphError where a function that runs in a key exchange counts on ``open``."""
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


def check_tag(given: object, call: str) -> None:
    """Raises GraphError for what is no tag of a side output."""
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
    """Set an operator's parallelism. Raises GraphError where it cannot have it."""
    check_parallelism(parallelism)
    if made.parallelism_max is not None and parallelism > made.parallelism_max:
        raise GraphError(
            f"The parallelism of non parallel operator must be 1, not {parallelism}",
            where=f"operator '{made.name}'",
            remedy="Leave out set_parallelism here; what reads it may have another.",
        )
    made.parallelism, made.parallelism_set = parallelism, True


def set_max_parallelism(made: OperatorTransformation, max_parallelism: int) -> None:
    """Set an operator's number of key groups. Raises ConfigError where it is out of bounds."""
    check_parallelism(1, max_parallelism)
    made.max_parallelism = max_parallelism


def set_uid_hash(made: OperatorTransformation, uid_hash: str) -> None:
    """Set the id under which an operator's state is looked up first. Raises GraphError."""
    if not _HASH.fullmatch(uid_hash):
        raise GraphError(
            "Node hash must be a 32 character String that describes a hex code. Found: "
            f"{uid_hash!r}",
            where=f"operator '{made.name}'",
            remedy="Take the id from the log or from the checkpoint.",
        )
    made.uid_hash = OperatorId(bytes.fromhex(uid_hash))
