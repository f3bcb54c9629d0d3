"""Changes to a program, each with what the check says of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.upgrade.programs import STATES, Hook, Keeper, Plan, Stateful, number_of, same, text_of
from tidegate import (
    DataStream,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateDescriptor,
    ProcessingTimeSessionWindows,
    RedistributionMode,
    StreamExecutionEnvironment,
    Time,
    Types,
    UpgradeFault,
    ValueStateDescriptor,
)
from tidegate.connectors import DataGeneratorSource, FileSource

LOST, CHANGED, LEFT = (
    UpgradeFault.OPERATOR_LOST,
    UpgradeFault.STATE_CHANGED,
    UpgradeFault.STATE_LEFT,
)


Told = tuple[UpgradeFault, str | None, str | None]
"""What is to be found: its kind, the operator and the state."""


@dataclass
class WithoutDefault:
    sensor: int
    value: float
    unit: str


WithoutDefault.__name__ = WithoutDefault.__qualname__ = "Reading"


@dataclass
class OtherField:
    sensor: str
    value: float


@dataclass
class WithDefault:
    value: float
    sensor: int
    unit: str = "m"


@dataclass
class Fewer:
    sensor: int


class PointAsRecord(NamedTuple):
    sensor: int
    value: float


def value(name: str, type_info: Any) -> Callable[[Plan], None]:
    return lambda plan: plan.with_state(name, ValueStateDescriptor(name, type_info))


def state(name: str, descriptor: Any) -> Callable[[Plan], None]:
    return lambda plan: plan.with_state(name, descriptor)


def put(**changes: Any) -> Callable[[Plan], None]:
    def edit(plan: Plan) -> None:
        for name, changed in changes.items():
            assert hasattr(plan, name)
            setattr(plan, name, changed)

    return edit


def renamed(plan: Plan) -> None:
    plan.with_state("count", None)
    plan.with_state("counts", ValueStateDescriptor("counts", Types.LONG()))


def twice(plan: Plan) -> None:
    plan.with_state("again", ValueStateDescriptor("count", Types.STRING()))


def keyed_state_without_a_key(
    env: StreamExecutionEnvironment, offsets: DataStream[Any], keyed: Any
) -> None:
    offsets.map(Stateful()).uid("unkeyed").print().uid("end 4")


def swapped_uids(plan: Plan) -> None:
    plan.keeper, plan.extra = None, _windows_as_keeper


def _windows_as_keeper(env: StreamExecutionEnvironment, offsets: Any, keyed: Any) -> None:
    keyed.map(same).uid("keeper").print().uid("end 1")


BREAKING: dict[str, tuple[Callable[[Plan], None], set[Told]]] = {
    "a uid is another one": (put(keeper="keepers"), {(LOST, "keeper", None)}),
    "a step is gone": (put(keeper=None), {(LOST, "keeper", None), (LOST, "end 1", None)}),
    "a uid is left out": (put(offsets_uid=None), {(LOST, "offsets", None)}),
    "a sink is gone": (
        put(sink_uid=None),
        {(LOST, "files", None), (UpgradeFault.COMMITTABLES_LOST, "files", "SinkCommittables")},
    ),
    "a sink has another uid": (
        put(sink_uid="lines"),
        {(LOST, "files", None), (UpgradeFault.COMMITTABLES_LOST, "files", "SinkCommittables")},
    ),
    "a uid is another step's": (
        swapped_uids,
        {(LEFT, "keeper", name) for name in (*STATES, "_timer_state/event_user-timers")},
    ),
    "a number becomes a text": (value("count", Types.STRING()), {(CHANGED, "keeper", "count")}),
    "a number gets narrower": (value("count", Types.SHORT()), {(CHANGED, "keeper", "count")}),
    "a float becomes an integer": (value("price", Types.LONG()), {(CHANGED, "keeper", "price")}),
    "a field without default comes in": (
        value("reading", WithoutDefault),
        {(CHANGED, "keeper", "reading")},
    ),
    "a field gets another type": (value("reading", OtherField), {(CHANGED, "keeper", "reading")}),
    "a dataclass becomes a NamedTuple": (
        value("reading", PointAsRecord),
        {(CHANGED, "keeper", "reading")},
    ),
    "a tuple gets longer": (
        value("pair", Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])),
        {(CHANGED, "keeper", "pair")},
    ),
    "a type is not declared any more": (value("label", None), {(CHANGED, "keeper", "label")}),
    "a type is declared by now": (value("note", Types.STRING()), {(CHANGED, "keeper", "note")}),
    "elements of a list get another type": (
        state("recent", ListStateDescriptor("recent", Types.STRING())),
        {(CHANGED, "keeper", "recent")},
    ),
    "keys of a map get another type": (
        state("seen", MapStateDescriptor("seen", Types.LONG(), Types.LONG())),
        {(CHANGED, "keeper", "seen")},
    ),
    "values of a map get another type": (
        state("seen", MapStateDescriptor("seen", Types.STRING(), Types.STRING())),
        {(CHANGED, "keeper", "seen")},
    ),
    "a value becomes a list": (
        state("count", ListStateDescriptor("count", Types.LONG())),
        {(CHANGED, "keeper", "count")},
    ),
    "a reduced value becomes a plain one": (
        value("best", Types.LONG()),
        {(CHANGED, "keeper", "best")},
    ),
    "a state has another name": (renamed, {(LEFT, "keeper", "count")}),
    "a state is gone": (state("seen", None), {(LEFT, "keeper", "seen")}),
    "a state is asked for as two": (
        twice,
        {(UpgradeFault.STATE_TWICE, "keeper", "count")},
    ),
    "a list is handed to all": (
        put(
            offsets=OperatorStateDescriptor("offsets", Types.LONG(), mode=RedistributionMode.UNION)
        ),
        {(CHANGED, "offsets", "offsets")},
    ),
    "elements of an operator's list get another type": (
        put(offsets=OperatorStateDescriptor("offsets", Types.STRING())),
        {(CHANGED, "offsets", "offsets")},
    ),
    "broadcast state gets another type": (
        put(rules=MapStateDescriptor("rules", Types.STRING(), Types.STRING())),
        {(CHANGED, "rules", "rules")},
    ),
    "keys get another type": (
        put(key=text_of, key_type=Types.STRING()),
        {(UpgradeFault.KEY_CHANGED, each, None) for each in ("keeper", "sums", "windows")},
    ),
    "a key is gone": (
        put(extra=keyed_state_without_a_key),
        {(UpgradeFault.OPEN_FAILED, "unkeyed", None)},
    ),
    "records get another type": (
        put(value_type=Types.STRING()),
        {(CHANGED, "sums", "_reduce_state"), (CHANGED, "windows", "window-contents")},
    ),
    "windows become sessions": (
        put(window=ProcessingTimeSessionWindows.with_gap(Time.hours(1))),
        {(CHANGED, "windows", "window-contents")},
    ),
    "a max parallelism is another one": (
        put(keeper_max_parallelism=64),
        {(UpgradeFault.MAX_PARALLELISM, None, None)},
    ),
    "a parallelism is above the max parallelism": (
        put(keeper_parallelism=200),
        {(UpgradeFault.MAX_PARALLELISM, None, None)},
    ),
    "a source is another one": (
        put(source=FileSource.text(__file__)),
        {
            (UpgradeFault.OPEN_FAILED, "numbers", None),
            (UpgradeFault.COORDINATOR, "numbers", None),
        },
    ),
    "a hook is gone": (put(hook=None), {(UpgradeFault.HOOK, None, "tables")}),
    "a hook reads its state no more": (
        put(hook=Hook(version=2)),
        {(UpgradeFault.HOOK, None, "tables")},
    ),
}


HARMLESS: dict[str, Callable[[Plan], None]] = {
    "nothing": lambda plan: None,
    "a number gets wider": value("price", Types.DOUBLE()),
    "a field with a default comes in, in another order": value("reading", WithDefault),
    "a field goes": value("reading", Fewer),
    "a state comes in": state("more", ValueStateDescriptor("more", Types.LONG())),
    "a step without state comes in": put(between=True),
    "a state expires": value("count", Types.LONG()),
    "a parallelism is another one": put(keeper_parallelism=3),
    "the key's type is not declared": put(key_type=None),
    "the source makes other numbers": put(
        source=DataGeneratorSource(number_of, None, 1_000, Types.LONG())
    ),
    "a step with state comes in": put(
        extra=lambda env, offsets, keyed: (
            keyed.process(Keeper(dict(STATES))).uid("second keeper").print().uid("end 4")
        )
    ),
}
