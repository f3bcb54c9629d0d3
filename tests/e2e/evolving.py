"""One program with state of one record, in the forms that the record had. Slots import this."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.e2e.jobs import key_of, same
from tests.e2e.ledger import LedgerSink
from tidegate import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)


class Place(NamedTuple):
    """Where a number was met; its second form has another order and one field more."""

    partition: int
    offset: int


class NewPlace(NamedTuple):
    offset: int
    partition: int
    region: str = "eu"


@dataclass
class Seen:
    count: int
    checked: bool
    place: Place


@dataclass
class Grown:
    """One field gone, one in another form, one moved, and two added with defaults."""

    place: NewPlace
    count: int
    tags: list[str] = field(default_factory=list[str])
    mean: float = 0.5


@dataclass
class Renamed:
    """A field without default: what is its value in old state?"""

    total: int
    checked: bool
    place: Place


@dataclass
class Retyped:
    count: str
    checked: bool
    place: Place


FORMS: dict[str, Any] = {
    "seen": Seen,
    "grown": Grown,
    "renamed": Renamed,
    "retyped": Retyped,
    "undeclared": None,
    "int": Types.INT(),
    "long": int,
}


class Remembering(KeyedProcessFunction[int, dict[str, Any]]):
    """Counts the numbers of each key in a state of some form, beside a number of another."""

    def __init__(self, form: str, width: str) -> None:
        self._form = form
        self._width = width

    def open(self, runtime_context: RuntimeContext) -> None:
        form, width = FORMS[self._form], FORMS[self._width]
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", form))
        self._number = runtime_context.get_state(ValueStateDescriptor("number", width))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[dict[str, Any]]:
        held, number = self._seen.value(), (self._number.value() or 0) + 1
        count = 1 + (0 if held is None else held.count)
        self._number.update(number)
        if self._form == "seen":
            self._seen.update(Seen(count, True, Place(value, count)))
        else:
            first = NewPlace(count, value) if held is None else held.place
            self._seen.update(Grown(first, count, [*(held.tags if held else ()), "on"]))
        place = None if held is None else tuple(held.place)
        yield {"number": value, "count": count, "wide": number, "before": place}


def remember(
    env: StreamExecutionEnvironment, folder: Any, rows: int, rate: float | None, *forms: str
) -> None:
    """The program, with its state in these forms."""
    numbers = env.generate(same, rows, rate, Types.LONG()).uid("numbers")
    keyed = numbers.key_by(key_of, key_type=Types.LONG())
    seen = keyed.process(Remembering(*forms)).uid("remembering").name("remembering")
    seen.sink_to(LedgerSink(folder)).uid("ledger")
