"""Mistakes in a sink of the user's are told with the operator and the call."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.operators.world import Hosted, World
from tidegate.api.operator import Operator
from tidegate.api.sink import Prepared, WriterContext
from tidegate.errors import BadRecord, CommitFailed, TidegateError, UserCodeFailed, UserError
from tidegate.model.elements import Batch
from tidegate.model.settings import SlotSettings
from tidegate.operators.sinks.sink import SinkOperator
from tidegate.operators.sinks.sink_topology import SinkWriterOperator


class Mistaken:
    """A sink with one mistake: a call that raises, or that returns what it should not."""

    def __init__(self, call: str, returned: object = KeyError) -> None:
        self._call = call
        self._returned = returned
        self.calls = 0

    def _make(self, call: str, right: Any) -> Any:
        if call != self._call:
            return right
        self.calls += 1
        if isinstance(self._returned, type) and issubclass(self._returned, Exception):
            raise self._returned("a mistake")
        if isinstance(self._returned, Exception):
            raise self._returned
        return self._returned

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "Mistaken":
        return self._make("writer", self)

    def committer(self) -> "Mistaken":
        return self

    def write(self, batch: Batch) -> None:
        return self._make("write", None)

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        return self._make("prepare_commit", Prepared([b"a"]))

    def snapshot(self, checkpoint: int) -> Sequence[bytes]:
        return self._make("snapshot", [])

    def on_complete(self, checkpoint: int) -> None:
        return self._make("on_complete", None)

    def commit(self, committables: Sequence[bytes]) -> None:
        return self._make("commit", None)

    def close(self) -> None: ...


def mistake(
    world: World, sink: Mistaken, kind: Callable[[Mistaken], Operator] = SinkOperator
) -> TidegateError:
    """What the subtask fails with."""
    with pytest.raises(TidegateError) as failed:
        step = Hosted(kind(sink), world, name="to table", settings=SlotSettings(commit_retries=2))
        step.rows(1)
        step.snapshot(1)
        step.complete(1)
    return failed.value


@pytest.mark.parametrize(
    "call", ["writer", "write", "prepare_commit", "snapshot", "on_complete", "commit"]
)
def test_what_a_call_raises_is_told_with_operator_call_and_trace(world: World, call: str) -> None:
    failed = mistake(world, Mistaken(call))
    assert isinstance(failed, UserCodeFailed)
    assert failed.what == "the function of operator 'to table' raised KeyError: 'a mistake'"
    assert failed.where == f"operator 'to table', in its {call}"
    assert "self._make" in failed.trace


@pytest.mark.parametrize(
    "call", ["writer", "write", "prepare_commit", "snapshot", "on_complete", "commit"]
)
def test_an_error_of_tidegates_own_stays_what_it_is_with_the_cause_that_it_has(
    world: World, call: str
) -> None:
    cause = OSError("the disk")
    ours = BadRecord("no number")
    ours.__cause__ = cause
    failed = mistake(world, Mistaken(call, ours))
    assert failed is ours and failed.__cause__ is cause


WRONG: list[tuple[str, object, str]] = [
    ("prepare_commit", None, "prepare_commit returned None, not a Prepared"),
    ("prepare_commit", [b"a"], "prepare_commit returned a list, not a Prepared"),
    ("snapshot", None, "snapshot of a writer returned None, not a list of bytes"),
    ("snapshot", b"state", "snapshot of a writer returned a bytes, not a list of bytes"),
]


@pytest.mark.parametrize("kind", [SinkOperator, SinkWriterOperator])
@pytest.mark.parametrize(("call", "returned", "text"), WRONG)
def test_what_a_call_should_not_return_is_told_with_the_operator(
    world: World,
    kind: Callable[[Mistaken], Operator],
    call: str,
    returned: object,
    text: str,
) -> None:
    failed = mistake(world, Mistaken(call, returned), kind)
    assert isinstance(failed, UserError)
    assert (failed.what, failed.where) == (text, "operator 'to table'")


def test_a_connection_that_is_lost_at_a_commit_is_tried_again(world: World) -> None:
    sink = Mistaken("commit", ConnectionResetError)
    failed = mistake(world, sink)
    assert isinstance(failed, CommitFailed)
    assert "could not be committed in 3 tries: ConnectionResetError: a mistake" in failed.what
    assert sink.calls == 3
