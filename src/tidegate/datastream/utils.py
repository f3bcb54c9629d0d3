"""Calls that Flink keeps beside its streams, since few programs need them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.functions import KeySelector
    from tidegate.datastream.keyed import KeyedStream
    from tidegate.datastream.stream import DataStream
    from tidegate.typeinfo.hints import TypeHint

T = TypeVar("T")
K = TypeVar("K")


class DataStreamUtils:
    """Static calls on streams."""

    @staticmethod
    def reinterpret_as_keyed_stream(
        stream: DataStream[T],
        key_selector: str | KeySelector[T, K] | Callable[[T], K],
        type_info: TypeHint | None = None,
    ) -> KeyedStream[T]:
        """The stream as a keyed one, without sending records anywhere.

        Each record has to be in that subtask already to which ``key_by`` would send it, as after
        steps on a keyed stream that kept the key; one that is not fails the job. type_info: of the
        keys. The next step runs at the same parallelism.

        >>> totals = sales.key_by(lambda s: s.shop).map(Enriched())
        >>> DataStreamUtils.reinterpret_as_keyed_stream(totals, lambda s: s.shop).sum("amount")
        """
        return stream.reinterpreted(key_selector, type_info)
