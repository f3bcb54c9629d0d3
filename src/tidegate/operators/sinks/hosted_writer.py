"""A sink's writer under its operator's name: failures and wrong results say whose they are."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from tidegate.api.sink import CoordinatedWriter, NotifiedWriter, Prepared
from tidegate.errors import UserError, with_article
from tidegate.operators.failures import raise_user_code_failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Sequence

    from tidegate.api.sink import Sink, WriterContext
    from tidegate.model.elements import Batch, OperatorEvent
    from tidegate.model.ids import CheckpointId


class HostedWriter:
    """The writer of one subtask. Raises UserCodeFailed, UserError for a wrong result.

    What its calls leave to be awaited fails as its subtask does.
    """

    def __init__(self, sink: Sink, context: WriterContext, restored: Sequence[bytes]) -> None:
        self._operator = context.operator
        with self._call("writer"):
            writer = self._writer = sink.writer(context, restored)
        self._notified = writer if isinstance(writer, NotifiedWriter) else None
        self._coordinated = writer if isinstance(writer, CoordinatedWriter) else None

    def write(self, batch: Batch) -> Awaitable[object] | None:
        with self._call("write"):
            return self._writer.write(batch)

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        with self._call("prepare_commit"):
            found = cast("object", self._writer.prepare_commit(end_of_input=end_of_input))
        if isinstance(found, Prepared):
            return found
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
