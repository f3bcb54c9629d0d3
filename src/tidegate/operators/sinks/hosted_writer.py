"""A sink's writer under its operator's name: failures and wrong results say whose they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import contextmanager
from inspect import iscoroutine
from typing import TYPE_CHECKING, cast

from tidegate.api.sink import CoordinatedWriter, NotifiedWriter, Prepared
from tidegate.errors import UserError, with_article
from tidegate.operators.async_calls.cancellation import cancelled
from tidegate.operators.failures import raise_user_code_failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Sequence

    from tidegate.api.sink import Sink, WriterContext
    from tidegate.model.elements import Batch, OperatorEvent
    from tidegate.model.ids import CheckpointId


class HostedWriter:
    """The writer of one subtask. Raises UserCodeFailed, UserError for a wrong result."""

    def __init__(self, sink: Sink, context: WriterContext, restored: Sequence[bytes]) -> None:
        self._operator = context.operator
        with self._call("writer"):
            writer = self._writer = sink.writer(context, restored)
        self._notified = writer if isinstance(writer, NotifiedWriter) else None
        self._coordinated = writer if isinstance(writer, CoordinatedWriter) else None

    def write(self, batch: Batch) -> Awaitable[object] | None:
        with self._call("write"):
            waiting = self._writer.write(batch)
        return None if waiting is None else _Told(waiting, self._operator, "write")

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        with self._call("prepare_commit"):
            found = cast("object", self._writer.prepare_commit(end_of_input=end_of_input))
        if isinstance(found, Prepared):
            if found.durable is None:
                return found
            told = _Told(found.durable, self._operator, "prepare_commit")
            return Prepared(found.committables, told)
        raise UserError(
            f"prepare_commit returned {with_article(type(found))}, not a Prepared",
            where=f"operator '{self._operator}'",
            remedy="Return Prepared(committables), or Prepared() where there is nothing to commit.",
        )

    def snapshot(self, checkpoint: CheckpointId) -> list[bytes]:
        with self._call("snapshot"):
            found = cast("object", self._writer.snapshot(checkpoint))
            if isinstance(found, Iterable) and not isinstance(found, str | bytes):
                return list(cast("Iterable[bytes]", found))
        raise UserError(
            f"snapshot of a writer returned {with_article(type(found))}, not a list of bytes",
            where=f"operator '{self._operator}'",
            remedy="Return the writer's state as a list of bytes, or [] where it has none.",
        )

    def on_complete(self, checkpoint: CheckpointId) -> None:
        if self._notified is not None:
            with self._call("on_complete"):
                self._notified.on_complete(checkpoint)

    def on_event(self, event: OperatorEvent) -> None:
        if self._coordinated is not None:
            with self._call("on_event"):
                self._coordinated.on_event(event)

    def close(self) -> None:
        with self._call("close"):
            self._writer.close()

    @contextmanager
    def _call(self, call: str) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            raise_user_code_failed(error, operator=self._operator, call=call)


class _Told:
    """An awaitable that a call gave: its failure says whose it is, as that of the call does."""

    def __init__(self, waiting: Awaitable[object], operator: str, call: str) -> None:
        self._waiting = waiting
        self._operator = operator
        self._call = call

    def __await__(self) -> Generator[object, None, object]:
        try:
            return (yield from self._waiting.__await__())
        except (Exception, asyncio.CancelledError) as error:
            if cancelled():
                raise
            raise_user_code_failed(error, operator=self._operator, call=self._call)

    def __del__(self) -> None:
        # A subtask that ends at once awaits it no more; Python would complain of the coroutine.
        if iscoroutine(self._waiting):
            self._waiting.close()
