"""Side outputs: results of an operator outside of its main output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, overload

from tidegate.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")


class _Made:
    any: bool = False


MADE: Final = _Made()
"""Whether there is any tag in this process: where not, no result can be meant for a side output."""


class OutputTag(Generic[T]):
    """Names a side output: a function yields ``(tag, value)``, ``get_side_output(tag)`` reads it.

    Tags of one id are the same output. type_info: of the values (a list: of the fields of a tuple);
    None for any. Raises GraphError for an empty id, and for what is no type.

    >>> late = OutputTag("late")
    """

    __slots__ = ("tag_id", "type_info")

    @overload
    def __init__(self, tag_id: str, type_info: TypeInformation[T]) -> None: ...
    @overload
    def __init__(
        self: OutputTag[Any],
        tag_id: str,
        type_info: TypeHint | Sequence[TypeInformation] | None = None,
    ) -> None: ...
    def __init__(
        self, tag_id: str, type_info: TypeHint | Sequence[TypeInformation] | None = None
    ) -> None:
        if not tag_id or not isinstance(tag_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphError(
                f"An output tag cannot have the id {tag_id!r}",
                where="OutputTag",
                remedy="Give it a name.",
            )
        from tidegate.typeinfo.types import TypeInformation

        self.tag_id = tag_id
        self.type_info = (
            type_info
            if type_info is None or isinstance(type_info, TypeInformation)
            else _declared(type_info)
        )
        MADE.any = True

    def __reduce__(self) -> tuple[Any, ...]:
        return OutputTag, (self.tag_id, self.type_info)

    def __copy__(self) -> OutputTag[T]:
        return self

    def __deepcopy__(self, memo: object) -> OutputTag[T]:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"


def _declared(given: TypeHint | Sequence[TypeInformation]) -> TypeInformation | None:
    from tidegate.typeinfo.hints import declared_type
    from tidegate.typeinfo.types import Types

    if isinstance(given, list | tuple):
        return Types.TUPLE(given)
    return declared_type(cast("TypeHint", given), where="OutputTag")


def is_aside(result: object) -> bool:
    """True if a result is a pair of a tag and a value for its side output."""
    if type(result) is not tuple:
        return False
    pair = cast("tuple[object, ...]", result)
    return len(pair) == 2 and type(pair[0]) is OutputTag
