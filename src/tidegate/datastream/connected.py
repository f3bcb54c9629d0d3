"""Two streams as the inputs of one step: connected, or one of them broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidegate.api.functions.co_functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from tidegate.api.state import MapStateDescriptor
from tidegate.datastream import keyed as keyed_streams
from tidegate.datastream.checking import checks, types
from tidegate.datastream.steps.functions import CoFlatMap, CoMap
from tidegate.datastream.told import name_of
from tidegate.errors import GraphError
from tidegate.operators.process.process_functions import (
    BroadcastOperator,
    CoProcessOperator,
    KeyedBroadcastOperator,
    KeyedCoProcessOperator,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.api.functions import Function, KeySelector
    from tidegate.datastream.stream import DataStream
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")


class ConnectedStreams(Generic[T, S]):
    """Two streams that one step reads; made by ``connect``.

    They are keyed where both are: then the step has state and timers that both share, key by key.

    >>> orders.connect(payments).key_by(lambda o: o.id, lambda p: p.order_id).process(Match())
    """

    def __init__(self, input_stream1: DataStream[T], input_stream2: DataStream[S]) -> None:
        self._first, self._second = input_stream1, input_stream2
        self._keyed = False
        self._key_type: TypeInformation | None = None
        if isinstance(input_stream1, keyed_streams.KeyedStream) and isinstance(
            input_stream2, keyed_streams.KeyedStream
        ):
            first, second = input_stream1.keys_shared_with(input_stream2, "connect")
            self._first, self._second = first, second
            self._keyed, self._key_type = True, first.key_type

    def __repr__(self) -> str:
        names = f"{name_of(self._first.transformation)} and {name_of(self._second.transformation)}"
        return f"<ConnectedStreams of {names}{', keyed' if self._keyed else ''}>"

    def key_by(
        self,
        key_selector1: str | KeySelector[T, Any] | Callable[[T], Any],
        key_selector2: str | KeySelector[S, Any] | Callable[[S], Any],
        key_type: TypeHint | None = None,
    ) -> ConnectedStreams[T, S]:
        """Records of one key, of both streams, to one subtask.

        The selectors give keys of one type; key_type declares it.
        """
        first = self._first.key_by(key_selector1, key_type)
        return ConnectedStreams(first, self._second.key_by(key_selector2, key_type))

    def map(
        self, func: CoMapFunction[T, S, R], output_type: TypeHint | None = None
    ) -> DataStream[R]:
        """One record for each; with keys, the function may use state of the record's key."""
        _check(func, CoMapFunction, "map")
        declared = _declared(output_type, func, ("map1", "map2"), iterable=False)
        return self._added("Co-Map", CoMap(func), func, declared)

    def flat_map(
        self, func: CoFlatMapFunction[T, S, R], output_type: TypeHint | None = None
    ) -> DataStream[R]:
        """Any number of records for each; with keys, it may use state of the record's key."""
        _check(func, CoFlatMapFunction, "flat_map")
        declared = _declared(output_type, func, ("flat_map1", "flat_map2"))
        return self._added("Co-Flat Map", CoFlatMap(func), func, declared)

    def process(
        self,
        func: KeyedCoProcessFunction[T, S, R] | CoProcessFunction[T, S, R],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Any number of records for each.

        With keys a ``KeyedCoProcessFunction``, else a ``CoProcessFunction``.
        """
        kind: type[Function] = CoProcessFunction
        name, remedy = "Co-Process", "Derive a class from CoProcessFunction."
        if self._keyed:
            kind, name = KeyedCoProcessFunction, "Co-Keyed-Process"
            remedy = "The streams have keys: derive a class from KeyedCoProcessFunction."
        elif isinstance(func, KeyedCoProcessFunction):
            remedy = "Key both streams first: connect(...).key_by(selector1, selector2)."
        _check(func, kind, "process", remedy)
        declared = _declared(output_type, func, CoProcessOperator.methods)
        return self._added(name, func, func, declared)

    def _added(
        self, name: str, function: object, given: object, output_type: TypeInformation | None
    ) -> DataStream[Any]:
        operator = (
            KeyedCoProcessOperator(function, self._key_type)
            if self._keyed
            else CoProcessOperator(function)
        )
        return self._first.transform(
            name,
            operator,
            output_type,
            others=(self._second,),
            keyed=self._keyed,
            stateful=self._keyed or checks.has_state(given),
        )


class BroadcastStream(Generic[S]):
    """A stream whose every record goes to every subtask, into broadcast state; to be connected.

    Made by ``broadcast`` with descriptors. Raises GraphError for what is none, and for two of one
    name.
    """

    def __init__(
        self,
        input_stream: DataStream[S],
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        self.input_stream = input_stream.broadcast()
        self.broadcast_state_descriptors = tuple(broadcast_state_descriptors)
        names: set[str] = set()
        for each in self.broadcast_state_descriptors:
            if not isinstance(each, MapStateDescriptor):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise GraphError(
                    f"broadcast takes a MapStateDescriptor, not {type(each).__name__}",
                    where="broadcast",
                    remedy='Broadcast state is a map: MapStateDescriptor("name", ...).',
                )
            if each.name in names:
                raise GraphError(
                    f"Two broadcast states have the name '{each.name}'",
                    where="broadcast",
                    remedy="Give each a name of its own.",
                )
            names.add(each.name)

    def __repr__(self) -> str:
        names = ", ".join(each.name for each in self.broadcast_state_descriptors)
        return f"<BroadcastStream of {self.input_stream!r}, state {names}>"


class BroadcastConnectedStream(Generic[T, S]):
    """A stream and a broadcast stream that one step reads; made by ``connect``.

    >>> limits = MapStateDescriptor("limits", Types.STRING(), Types.LONG())
    >>> payments.key_by(card_of).connect(rules.broadcast(limits)).process(Judge(limits))
    """

    def __init__(
        self,
        non_broadcast_stream: DataStream[T],
        broadcast_stream: BroadcastStream[S],
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        self._stream = non_broadcast_stream
        self._broadcast = broadcast_stream.input_stream
        self._descriptors = tuple(broadcast_state_descriptors)

    def __repr__(self) -> str:
        stream, rules = map(name_of, (self._stream.transformation, self._broadcast.transformation))
        return f"<BroadcastConnectedStream of {stream} and broadcast {rules}>"

    def process(
        self,
        func: KeyedBroadcastProcessFunction[Any, T, S, R] | BroadcastProcessFunction[T, S, R],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Any number of records for each.

        Where the stream that is not broadcast has keys a ``KeyedBroadcastProcessFunction``, else a
        ``BroadcastProcessFunction``.
        """
        others, descriptors = (self._broadcast,), self._descriptors
        if isinstance(self._stream, keyed_streams.KeyedStream):
            remedy = "The stream has keys: derive a class from KeyedBroadcastProcessFunction."
            _check(func, KeyedBroadcastProcessFunction, "process", remedy)
            name = "Co-Process-Broadcast-Keyed"
            keyed, operator = True, KeyedBroadcastOperator(func, descriptors, self._stream.key_type)
        else:
            remedy = (
                "Call key_by on the stream before it is connected."
                if isinstance(func, KeyedBroadcastProcessFunction)
                else "Derive a class from BroadcastProcessFunction."
            )
            _check(func, BroadcastProcessFunction, "process", remedy)
            name = "Co-Process-Broadcast"
            keyed, operator = False, BroadcastOperator(func, descriptors)
        declared = _declared(output_type, func, BroadcastOperator.methods)
        return self._stream.transform(
            name, operator, declared, others=others, keyed=keyed, stateful=True
        )


def _declared(
    given: TypeHint | None, func: object, methods: Sequence[str], *, iterable: bool = True
) -> TypeInformation | None:
    """The declared type of what methods give. Raises GraphError for one annotated otherwise."""
    found = [types.result_type(given, func, method, iterable=iterable) for method in methods]
    return found[0]


def _check(given: object, kind: type[Function], call: str, otherwise: str = "") -> None:
    remedy = otherwise or f"Derive a class from {kind.__name__}."
    checks.check_function_object(given, kind, call, otherwise=remedy)
