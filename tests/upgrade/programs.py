"""A program with a state of each kind, taken apart so that each part can be changed by itself."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    DataStream,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OperatorStateDescriptor,
    ReducingStateDescriptor,
    RuntimeContext,
    StateDescriptor,
    StreamExecutionEnvironment,
    Time,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
)
from tidegate.api.job import MasterTriggerRestoreHook
from tidegate.connectors import DataGeneratorSource, FileSink

RATE = 2_000


@dataclass
class Reading:
    sensor: int
    value: float


class Point(NamedTuple):
    x: int
    y: int


class Note:
    """Pickled, for its type is not declared."""

    def __init__(self, text: str) -> None:
        self.text = text


def larger(a: int, b: int) -> int:
    return max(a, b)


STATES: dict[str, tuple[StateDescriptor, object]] = {
    "count": (ValueStateDescriptor("count", Types.LONG()), 3),
    "price": (ValueStateDescriptor("price", Types.FLOAT()), 1.5),
    "label": (ValueStateDescriptor("label", Types.STRING()), "a"),
    "reading": (ValueStateDescriptor("reading", Reading), Reading(1, 0.5)),
    "point": (ValueStateDescriptor("point", Point), Point(1, 2)),
    "pair": (ValueStateDescriptor("pair", Types.TUPLE([Types.LONG(), Types.STRING()])), (1, "b")),
    "note": (ValueStateDescriptor("note"), Note("c")),
    "recent": (ListStateDescriptor("recent", Types.LONG()), [1, 2]),
    "seen": (MapStateDescriptor("seen", Types.STRING(), Types.LONG()), {"d": 4}),
    "best": (ReducingStateDescriptor("best", larger, Types.LONG()), 5),
}
"""What the operator "keeper" keeps for each key."""


class Keeper(KeyedProcessFunction[Any, int]):
    """Keeps states, and sets a timer that is never due."""

    def __init__(self, states: dict[str, tuple[StateDescriptor, object]]) -> None:
        self._states = states

    def open(self, runtime_context: RuntimeContext) -> None:
        get: dict[type, Any] = {
            ValueStateDescriptor: runtime_context.get_state,
            ListStateDescriptor: runtime_context.get_list_state,
            MapStateDescriptor: runtime_context.get_map_state,
            ReducingStateDescriptor: runtime_context.get_reducing_state,
        }
        self._kept = [(get[type(of)](of), of, value) for of, value in self._states.values()]

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        for state, of, kept in self._kept:
            match of:
                case ValueStateDescriptor() | ListStateDescriptor():
                    state.update(kept)
                case MapStateDescriptor():
                    state.put_all(kept)
                case _:
                    state.add(kept)
        ctx.timer_service().register_event_time_timer(2**60)
        yield 1


class Offsets(MapFunction[Any, Any], CheckpointedFunction):
    """Keeps a list a subtask."""

    def __init__(self, descriptor: OperatorStateDescriptor) -> None:
        self._descriptor = descriptor

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_operator_list_state(self._descriptor)

    def map(self, value: Any) -> Any:
        return value

    def snapshot_state(self, context: object) -> None:
        self._state.update([1, 2, 3])


class Rules(BroadcastProcessFunction[Any, Any, Any]):
    """Keeps what is broadcast."""

    def __init__(self, descriptor: MapStateDescriptor, value: object) -> None:
        self._descriptor = descriptor
        self._value = value

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(self._descriptor)["rule"] = self._value
        return iter(())


class Stateful(MapFunction[Any, Any]):
    """Asks for keyed state, wherever it stands."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value: Any) -> Any:
        return value


class Hook(MasterTriggerRestoreHook[str]):
    """Has a word to put into each checkpoint, of a version."""

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self.restored = False

    def get_identifier(self) -> str:
        return "tables"

    def trigger_checkpoint(self, checkpoint_id: object, timestamp_ms: int) -> str:
        return "word"

    def restore_checkpoint(self, checkpoint_id: object, state: str | None) -> None:
        self.restored = True

    def create_checkpoint_data_serializer(self) -> Any:
        return self

    def serialize(self, state: str) -> bytes:
        return state.encode()

    def deserialize(self, version: int, data: bytes) -> str:
        if version != self.version:
            raise ValueError(f"version {version} of the word")
        return data.decode()


def number_of(value: int) -> int:
    return value % 7


def text_of(value: int) -> str:
    return str(value % 7)


def nothing(value: object) -> bool:
    return False


def same(value: Any) -> Any:
    return value


def add(a: Any, b: Any) -> Any:
    return a + b


@dataclass
class Plan:
    """What can be changed of the program."""

    states: dict[str, tuple[StateDescriptor, object]] = field(default_factory=lambda: dict(STATES))
    key: Any = number_of
    key_type: Any = field(default_factory=Types.LONG)
    keeper: str | None = "keeper"
    keeper_max_parallelism: int | None = None
    keeper_parallelism: int | None = None
    offsets: OperatorStateDescriptor = field(
        default_factory=lambda: OperatorStateDescriptor("offsets", Types.LONG())
    )
    rules: MapStateDescriptor = field(
        default_factory=lambda: MapStateDescriptor("rules", Types.STRING(), Types.LONG())
    )
    rule: object = 1
    value_type: Any = field(default_factory=Types.LONG)
    window: Any = field(default_factory=lambda: TumblingProcessingTimeWindows.of(Time.hours(1)))
    source: Any = field(default_factory=lambda: DataGeneratorSource(same, None, RATE, Types.LONG()))
    sink_uid: str | None = "files"
    folder: str = ""
    hook: Hook | None = field(default_factory=Hook)
    between: bool = False
    offsets_uid: str | None = "offsets"
    extra: Any = None

    def with_state(
        self, name: str, descriptor: StateDescriptor | None, value: object = None
    ) -> None:
        """Change a state of the keeper, or leave it out."""
        if descriptor is None:
            del self.states[name]
        else:
            self.states[name] = descriptor, value


def end(stream: DataStream[Any], number: str) -> None:
    stream.filter(nothing).uid(f"none {number}").print().uid(f"end {number}")


def build(env: StreamExecutionEnvironment, plan: Plan) -> None:
    """The program."""
    numbers = env.from_source(plan.source, None, "numbers").uid("numbers")
    if plan.between:
        numbers = numbers.map(same)
    offsets = numbers.map(Offsets(plan.offsets), plan.value_type)
    if plan.offsets_uid is not None:
        offsets = offsets.uid(plan.offsets_uid)
    keyed = offsets.key_by(plan.key, plan.key_type)
    if plan.keeper is not None:
        kept = keyed.process(Keeper(plan.states)).uid(plan.keeper)
        if plan.keeper_max_parallelism is not None:
            kept = kept.set_max_parallelism(plan.keeper_max_parallelism)
        if plan.keeper_parallelism is not None:
            kept = kept.set_parallelism(plan.keeper_parallelism)
        end(kept, "1")
    end(keyed.reduce(add).uid("sums"), "2")
    end(keyed.window(plan.window).reduce(add).uid("windows"), "3")
    told = env.from_collection([1], Types.LONG()).uid("told")
    rules = offsets.connect(told.broadcast(plan.rules)).process(Rules(plan.rules, plan.rule))
    ruled = rules.uid("rules")
    if plan.sink_uid is not None:
        ruled.sink_to(FileSink.json(plan.folder + "/out")).uid(plan.sink_uid)
    if plan.extra is not None:
        plan.extra(env, offsets, keyed)
    if plan.hook is not None:
        env.add_master_hook(plan.hook)
