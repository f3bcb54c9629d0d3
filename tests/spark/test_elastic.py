"""Slots on Spark: what the driver hears where Spark itself is gone."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from tidegate.errors import NodeUnfit, SlotLost, TidegateError
from tidegate.model.control import SlotInvitation
from tidegate.model.settings import LinkSettings
from tidegate.spark.access.asking import within_limit
from tidegate.spark.access.classic import ClassicAccess
from tidegate.spark.elastic import ElasticProvider
from tidegate.transport.security import LinkSecurity

if TYPE_CHECKING:
    from collections.abc import Callable


REFUSED = ConnectionRefusedError(111, "Connection refused")
NO_ANSWER = Py4JNetworkError("An error occurred while trying to connect to the Java server")


class Spark:
    """A classic session whose JVM fails each call, or answers none of them any more."""

    def __init__(self, fails: Callable[[], object]) -> None:
        self.sparkContext = self
        self.master, self._jsc = "local[2]", object()
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **settings: self._fails()


class Provider:
    """An elastic provider, and what it tells the driver."""

    def __init__(self, fails: Callable[[], object]) -> None:
        session: Any = Spark(fails)
        security = LinkSecurity(LinkSettings(), "127.0.0.1")
        self.slots = ElasticProvider(ClassicAccess(session), "counts", security)
        self.failed: list[tuple[TidegateError, bool]] = []
        self.ended: list[str] = []
        self.told = threading.Semaphore(0)
        invitation = SlotInvitation("127.0.0.1:1", b"secret")
        self.slots.start(invitation, self._failed, self._ended)

    def ask(self) -> None:
        """Asks for a slot, hears what comes of it, and closes."""

        async def asked() -> None:
            self.slots.request(1)
            assert await asyncio.to_thread(self.told.acquire, timeout=100)
            await self.slots.close()

        asyncio.run(asked())

    def _failed(self, request: str, error: TidegateError, final: bool) -> None:
        self.failed.append((error, final))
        self.told.release()

    def _ended(self, who: str) -> None:
        self.ended.append(who)
        self.told.release()

    def check_gone(self) -> None:
        ((error, final),) = self.failed
        assert isinstance(error, SlotLost) and "Spark's JVM is gone" in error.what and final
        assert "--from latest" in error.remedy and self.ended == []


def fail(error: Exception) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call


@pytest.mark.parametrize("error", [REFUSED, NO_ANSWER], ids=lambda error: type(error).__name__)
def test_a_jvm_that_is_gone_when_a_slot_is_asked_for_is_the_end_of_the_job(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(**settings: object) -> SimpleNamespace:
        return SimpleNamespace(start=fail(error))  # PySpark asks the JVM before a thread starts

    monkeypatch.setattr(pyspark, "InheritableThread", make)
    provider = Provider(fail(error))
    provider.ask()
    provider.check_gone()


@pytest.mark.parametrize(
    "error",
    [REFUSED, NO_ANSWER, Py4JError("An error occurred while calling o59.collectToPython")],
    ids=lambda error: type(error).__name__,
)
def test_a_jvm_that_dies_under_a_slot_is_the_end_of_the_job(error: Exception) -> None:
    provider = Provider(fail(error))
    provider.ask()
    provider.check_gone()


def test_other_errors_of_spark_are_no_end_of_the_job() -> None:
    provider = Provider(fail(ValueError("no such thing")))
    provider.ask()
    ((error, final),) = provider.failed
    assert "no such thing" in error.what and not final


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ModuleNotFoundError: No module named 'tidegate'", NodeUnfit),
        ("[INVALID_HANDLE.SESSION_CLOSED] the handle is invalid", SlotLost),
    ],
)
def test_what_the_next_task_would_end_with_too_is_the_end_of_the_wait(
    text: str, kind: type[TidegateError]
) -> None:
    provider = Provider(fail(RuntimeError(text)))
    provider.ask()
    ((error, final),) = provider.failed
    assert type(error) is kind and final


@pytest.mark.parametrize(
    ("text", "from_outside"),
    [
        ("[SPARK_JOB_CANCELLED] Job 5 cancelled part of cancelled job tags a SQLSTATE: XX", True),
        ("[OPERATION_CANCELED] Operation has been canceled. SQLSTATE: HY008", True),
        ("ValueError: the order was cancelled, and its shipment was stopped", False),
    ],
)
def test_only_what_spark_says_of_its_jobs_means_that_they_were_ended_from_outside(
    text: str, from_outside: bool
) -> None:
    provider = Provider(fail(RuntimeError(text)))
    provider.ask()
    assert (bool(provider.ended), bool(provider.failed)) == (from_outside, not from_outside)


@pytest.mark.parametrize(
    "text",
    [
        "Job 5 cancelled because SparkContext was shut down",
        "Cannot call methods on a stopped SparkContext.\nIt was stopped at:",
        "Locally cancelled by application!",
    ],
)
def test_a_session_that_was_stopped_leaves_the_job_to_a_new_one(text: str) -> None:
    provider = Provider(fail(RuntimeError(text)))
    provider.ask()
    provider.check_gone()


def test_a_jvm_that_stands_still_does_not_keep_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    def make(**settings: object) -> SimpleNamespace:
        return SimpleNamespace(start=lambda: goes_on.wait(100) and fail(REFUSED)())

    monkeypatch.setattr(pyspark, "InheritableThread", make)
    provider = Provider(fail(REFUSED))

    async def asked() -> None:
        provider.slots.request(1)
        goes_on.set()  # the loop goes on before the JVM does
        assert await asyncio.to_thread(provider.told.acquire, timeout=100)
        await provider.slots.close()

    asyncio.run(asked())
    provider.check_gone()


def test_a_jvm_that_never_answers_is_not_waited_for() -> None:
    goes_on = threading.Event()
    session: Any = Spark(lambda: goes_on.wait(100))
    assert not within_limit(lambda: session.cancelJobsWithTag("tag"), limit_s=0.01)
    goes_on.set()


def test_slots_that_cannot_be_cancelled_since_spark_is_gone_do_not_keep_the_driver() -> None:
    session: Any = Spark(fail(NO_ANSWER))
    assert not ClassicAccess(session).cancel("tag")
