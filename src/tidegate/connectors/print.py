"""A sink that prints, in Flink's form: ``identifier:subtask> value``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidegate.api.rows.batches import as_rows
from tidegate.api.sink import Prepared
from tidegate.errors import OutputClosed
from tidegate.typeinfo.text import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.api.sink import WriterContext
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId
    from tidegate.typeinfo.types import TypeInformation


class PrintSink:
    """Prints each record on a line of its own, to the standard output of the slot's process.

    identifier: prefix of lines. type_info: of the records, which says how they are printed; None
    for Python's own text. to_error: prints to the standard error instead. At-least-once.
    """

    def __init__(
        self,
        identifier: str | None = None,
        type_info: TypeInformation | None = None,
        *,
        to_error: bool = False,
    ) -> None:
        self._identifier = identifier
        self._type_info = type_info
        self._to_error = to_error

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> PrintWriter:
        prefix = line_prefix(self._identifier, context.subtask, context.parallelism)
        return PrintWriter(prefix, text_of(self._type_info), to_error=self._to_error)

    def committer(self) -> None:
        return


class PrintWriter:
    """Prints the rows of one subtask."""

    def __init__(self, prefix: str, text: Callable[[object], str], *, to_error: bool) -> None:
        self._prefix = prefix
        self._text = text
        self._to_error = to_error

    def write(self, batch: Batch) -> None:
        # One call for the whole batch, so that the lines of two subtasks don't mix.
        prefix = self._prefix
        lines = "".join(f"{prefix}{text}\n" for text in map(self._text, as_rows(batch).values))
        try:
            print(lines, end="", flush=True, file=sys.stderr if self._to_error else sys.stdout)
        except BrokenPipeError as error:
            raise OutputClosed("nobody reads any more what it prints") from error

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        return Prepared()

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None: ...


def line_prefix(identifier: str | None, subtask: int, parallelism: int) -> str:
    """``identifier:subtask> ``, without parts that distinguish nothing; subtasks from 1."""
    parts = [identifier] if identifier else []
    if parallelism > 1:
        parts.append(str(subtask + 1))
    return f"{':'.join(parts)}> " if parts else ""
