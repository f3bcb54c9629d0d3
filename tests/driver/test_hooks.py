"""Master hooks: called beside each other, their states kept, given back by name."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest
import structlog

from flinkformat.snapshots import MasterState
from tidegate.api.job import MasterTriggerRestoreHook
from tidegate.driver.user_code import callbacks
from tidegate.driver.user_code.callbacks import MasterHooks
from tidegate.errors import RestoreRefused, UserCodeFailed
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SEVEN = CheckpointId(7)


class Texts:
    """Texts as UTF-8, in form 3."""

    version = 3

    def serialize(self, state: str) -> bytes:
        return state.encode()

    def deserialize(self, version: int, data: bytes) -> str:
        return f"{data.decode()} in form {version}"


class Remote(MasterTriggerRestoreHook[str]):
    """A hook that gives ``state``, and notes its calls."""

    def __init__(
        self,
        name: str,
        state: str | Future[str | None] | None = None,
        serializer: Texts | None = None,
    ) -> None:
        self.name, self.state, self.serializer = name, state, serializer
        self.calls: list[tuple[object, ...]] = []

    def get_identifier(self) -> str:
        return self.name

    def trigger_checkpoint(
        self, checkpoint_id: CheckpointId, timestamp_ms: int
    ) -> str | Future[str | None] | None:
        self.calls.append(("trigger", checkpoint_id, timestamp_ms))
        return self.state

    def restore_checkpoint(self, checkpoint_id: CheckpointId, state: str | None) -> None:
        self.calls.append(("restore", checkpoint_id, state))

    def reset(self) -> None:
        self.calls.append(("reset",))

    def close(self) -> None:
        self.calls.append(("close",))
        raise OSError("the line is dead")

    def create_checkpoint_data_serializer(self) -> Texts | None:
        return self.serializer


async def on_a_thread(call: Callable[[], object]) -> object:
    return await asyncio.to_thread(call)


def hooks_of(*hooks: Remote) -> MasterHooks:
    return MasterHooks(hooks, on_a_thread, structlog.get_logger())


def run(work: Coroutine[object, object, object]) -> object:
    async def limited() -> object:
        async with asyncio.timeout(5):
            return await work

    return asyncio.run(limited())


@pytest.mark.feature("F177", "F178")
def test_the_states_of_hooks_that_have_some_are_kept_with_their_form() -> None:
    later: Future[str | None] = Future()
    threading.Timer(0.01, later.set_result, ["late"]).start()
    nothing: Future[str | None] = Future()
    nothing.set_result(None)
    silent, prompt = Remote("silent"), Remote("prompt", "now", Texts())
    made = hooks_of(silent, prompt, Remote("slow", later, Texts()), Remote("empty", nothing))
    assert len(made) == 4
    assert run(made.trigger(SEVEN, 77)) == (
        MasterState("prompt", 3, b"now"),
        MasterState("slow", 3, b"late"),
    )
    assert silent.calls == prompt.calls == [("trigger", 7, 77)]


@pytest.mark.feature("F178")
def test_state_without_a_serializer_is_refused() -> None:
    with pytest.raises(UserCodeFailed, match="'remote' has state, and no serializer"):
        run(hooks_of(Remote("remote", "x")).trigger(SEVEN, 77))


def test_what_a_hook_raises_names_it() -> None:
    failed: Future[str | None] = Future()
    failed.set_exception(OSError("no answer"))
    with pytest.raises(UserCodeFailed, match="master hook 'remote' raised OSError: no answer"):
        run(hooks_of(Remote("remote", failed)).trigger(SEVEN, 77))


@pytest.mark.feature("F179")
def test_each_hook_gets_its_state_back_and_those_without_one_get_none() -> None:
    first, second = Remote("first"), Remote("second", serializer=Texts())
    made = hooks_of(first, second)
    states = [MasterState("second", 2, b"kept")]
    run(made.restore(SEVEN, states, allow_unmatched=False))
    assert second.calls == [("restore", 7, "kept in form 2")]
    assert first.calls == [("restore", 7, None)]


@pytest.mark.feature("F179")
def test_the_state_of_a_missing_hook_is_refused_unless_that_is_allowed() -> None:
    remote = Remote("remote")
    states = [MasterState("gone", 1, b"")]
    with pytest.raises(RestoreRefused, match="state of master hook 'gone'"):
        run(hooks_of(remote).restore(SEVEN, states, allow_unmatched=False))
    assert remote.calls == []
    with structlog.testing.capture_logs() as logs:
        run(hooks_of(remote).restore(SEVEN, states, allow_unmatched=True))
    assert remote.calls == [("restore", 7, None)]
    assert [(log["event"], log["hook"]) for log in logs] == [
        ("state of a missing master hook is dropped", "gone")
    ]


@pytest.mark.feature("F180")
def test_without_a_checkpoint_all_are_reset() -> None:
    remote = Remote("remote")
    run(hooks_of(remote).restore(None, (), allow_unmatched=False))
    assert remote.calls == [("reset",)]


def test_the_end_closes_all_whatever_one_of_them_raises() -> None:
    first, second = Remote("first"), Remote("second")
    with structlog.testing.capture_logs() as logs:
        run(hooks_of(first, second).close())
    assert first.calls == second.calls == [("close",)]
    assert [log["hook"] for log in logs] == ["first", "second"]


def test_hooks_that_do_not_close_in_time_are_named_and_left_to_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = threading.Event()

    class Hanging(Remote):
        def close(self) -> None:
            release.wait(5)

    class Fine(Remote):
        def close(self) -> None:
            self.calls.append(("close",))

    async def close() -> list[tuple[object, ...]]:
        fine = Fine("fine")
        await hooks_of(Hanging("hanging"), fine).close()
        release.set()
        return fine.calls

    monkeypatch.setattr(callbacks, "CLOSE_TIMEOUT_S", 0.05)
    with structlog.testing.capture_logs() as logs:
        assert asyncio.run(close()) == [("close",)]
    ((hook, error),) = [(log["hook"], log["error"]) for log in logs]
    assert hook == "hanging" and "did not end within 0.05 s" in error


def test_hooks_that_take_too_long_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    class Slow(Remote):
        def reset(self) -> None:
            release.wait(5)

    async def restore() -> None:
        try:
            await hooks_of(Slow("slow")).restore(None, (), allow_unmatched=False)
        finally:
            release.set()

    monkeypatch.setattr(callbacks, "RESTORE_TIMEOUT_S", 0.05)
    with pytest.raises(UserCodeFailed, match="not restored within") as raised:
        run(restore())
    assert raised.value.where == "master hooks slow"
