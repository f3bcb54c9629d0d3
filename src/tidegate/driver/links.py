"""The links of a driver to its slots, and the slots' pulse links."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from itertools import count
from typing import TYPE_CHECKING, Final, cast

from tidegate.errors import (
    ConfigError,
    DriverUnreachable,
    NodeUnfit,
    PeerLost,
    SlotLost,
    StorageFailed,
    TidegateError,
)
from tidegate.jobmaster.events import CancelRequested, SlotLeft, SlotRequestFailed
from tidegate.model.control import (
    Cancel,
    FailedStep,
    HasRead,
    Logged,
    Offer,
    Pulse,
    PulseHeard,
    ReadBack,
    Refused,
    Release,
    Samples,
    SlotLeaving,
    Threads,
    ToCoordinator,
    ToDriver,
)
from tidegate.model.versions import COMPARED, versions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    import structlog

    from tidegate.graph.runtime import SlotProvider
    from tidegate.jobmaster.events import JobEvent
    from tidegate.model.control import LongCall, SlotInvitation, ToSlot
    from tidegate.model.ids import SlotId
    from tidegate.transport.wire import Network, Wire

_HEARD: Final = pickle.dumps(PulseHeard(), protocol=5)

KNOWN_S: Final = 0.3
"""How long a broken link waits for word of how the process at its other end has ended."""

GONE_REMEDY: Final = (
    "If its process has ended, look at what it printed: a crash in a library, `os._exit` or a lack "
    "of memory ends a process without an exception."
)


class GoneSlots:
    """Tells that slots are lost, with the end of their process where the provider tells it.

    left: gets a slot and why it is gone. tells_ends: the provider says of each process how it has
    ended, which is known a moment after its link broke.
    """

    def __init__(self, left: Callable[[SlotId, SlotLost], None], *, tells_ends: bool) -> None:
        self._left = left
        self._tells_ends = tells_ends
        self._requests: dict[SlotId, str] = {}
        self._ends: dict[str, str] = {}
        self._waiting: dict[str, tuple[SlotId, PeerLost]] = {}
        self.any_came = False

    def offered(self, slot: SlotId, request: str, *, fits: bool) -> None:
        """A slot has offered itself. fits: it comes; else it is refused."""
        self._requests[slot] = request
        self.any_came = self.any_came or fits

    def has_offered(self, request: str) -> bool:
        return request in self._requests.values()

    def broke(self, slot: SlotId, error: PeerLost) -> None:
        """The link to a slot broke."""
        request = self._requests.get(slot, "")
        self._waiting[request] = slot, error
        if not self._tells_ends or request in self._ends:
            self._tell(request)
        else:
            asyncio.get_running_loop().call_later(KNOWN_S, self._tell, request)

    def process_ended(self, request: str, how: str) -> None:
        """The process of a slot that had offered itself has ended."""
        self._ends[request] = how
        self._tell(request)

    def _tell(self, request: str) -> None:
        if (waiting := self._waiting.pop(request, None)) is not None:
            slot, error = waiting
            why = self._ends.get(request, error.what)
            self._left(slot, SlotLost(f"slot {slot} is gone: {why}", remedy=GONE_REMEDY))


class SlotLinks:
    """Slots that have offered themselves, and whoever brings more to life.

    to_coordinator: gets the operators' events. heard: gets what was logged
    in slots, and what is kept of steps that failed.
    """

    def __init__(
        self,
        provider: SlotProvider,
        post: Callable[[JobEvent], None],
        to_coordinator: Callable[[ToCoordinator], None],
        heard: Callable[[Logged | FailedStep], None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._provider = provider
        self._post = post
        self._to_coordinator = to_coordinator
        self._heard = heard
        self._log = log
        self._open: set[Wire] = set()
        self._wires: dict[SlotId, Wire] = {}
        self._guards: dict[SlotId, Wire] = {}
        self._long_calls: dict[SlotId, LongCall | None] = {}
        self._untold: dict[SlotId, list[bytes]] = {}
        self.gone: Final = GoneSlots(self.left, tells_ends=provider.tells_ends)
        self._closed = False
        self._versions = versions()
        self.read_backs: Final = ReadBacks(self.send)
        self.questions: Final = Questions(self.send)

    @contextlib.asynccontextmanager
    async def open(
        self, network: Network, invitation: Callable[[str], SlotInvitation]
    ) -> AsyncGenerator[None]:
        """Slots can dial while this lasts; after it none is left. invitation: to an address."""
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as leaving:
            listener = await network.listen(self.accept)
            leaving.push_async_callback(self._provider.close)
            leaving.callback(self.close)
            leaving.push_async_callback(listener.close)
            self._provider.start(
                invitation(listener.address),
                lambda request, error, final: _from_thread(
                    loop, lambda: self._request_failed(request, error, final)
                ),
                lambda who: _from_thread(loop, lambda: self._post(CancelRequested(who))),
            )
            yield

    def accept(self, wire: Wire) -> _SlotHandler:
        if self._closed:
            wire.close()
        else:
            self._open.add(wire)
        return _SlotHandler(self, wire)

    async def hint(self) -> str:
        return await self._provider.hint()

    def request(self, count: int) -> None:
        self._provider.request(count)

    def release(self, reason: str) -> None:
        """Let all slots go, those that have not come yet included."""
        for slot in list(self._wires):
            self.send(slot, Release(reason))
        self._provider.release()

    def send(self, slot: SlotId, message: ToSlot) -> None:
        wire = self._wires.get(slot)
        if wire is not None:
            frame = pickle.dumps(message, protocol=5)
            wire.send([frame])
            # The slot itself may be in a call of a user's function that does not return.
            if isinstance(message, Cancel):
                self._tell_guard(slot, frame)

    def drop(self, slot: SlotId) -> None:
        """End the link to a slot; the machine knows already."""
        self.read_backs.left(slot)
        wire = self._wires.pop(slot, None)
        if wire is not None:
            wire.close()
        refused = Refused("the driver goes on without it")
        self._tell_guard(slot, pickle.dumps(refused, protocol=5))

    def close(self) -> None:
        """End all links, those of slots that have not offered themselves and pulses included."""
        self._closed = True
        self._wires.clear()
        for wire in list(self._open):
            wire.close()

    def _request_failed(self, request: str, error: TidegateError, final: bool) -> None:
        """A slot's process has ended; the reason of a lost one where the slot had come."""
        if self.gone.has_offered(request):
            self.gone.process_ended(request, error.what)
            return
        # Once a slot has come, it is about one node, or the network for a while.
        of_node = isinstance(error, DriverUnreachable | NodeUnfit | ConfigError)
        final = final and not (of_node and self.gone.any_came)
        self._post(SlotRequestFailed(error, final))

    # --- for the handlers ---

    def offered(self, offer: Offer, wire: Wire) -> None:
        mismatch = _mismatch(offer, self._versions)
        self.gone.offered(offer.slot, offer.request, fits=mismatch is None)
        self._wires[offer.slot] = wire
        if mismatch is not None:
            self.send(offer.slot, Refused(mismatch.what))
            self.drop(offer.slot)
            self._post(SlotRequestFailed(mismatch, final=not self.gone.any_came))
            return
        self.read_backs.came(offer.slot, offer.host)
        self._log.info("slot offered itself", slot=offer.slot, host=offer.host, pid=offer.pid)
        self._post(offer)

    def guarded(self, pulse: Pulse, wire: Wire) -> None:
        slot = pulse.slot
        self._guards[slot] = wire
        if pulse.long_call != self._long_calls.get(slot):
            self._long_calls[slot] = pulse.long_call
            self._tell_of_long_call(pulse)
        for frame in self._untold.pop(slot, ()):
            wire.send([frame])
        wire.send([_HEARD])

    def _tell_of_long_call(self, pulse: Pulse) -> None:
        if pulse.long_call is not None:
            self._log.warning(
                "a function has been in one call for a long time; until it returns, its subtask "
                "takes no checkpoint",
                function=pulse.long_call.function,
                for_ms=pulse.batch_age_ms,
                slot=pulse.slot,
                stack=pulse.long_call.stack,
            )

    def _tell_guard(self, slot: SlotId, frame: bytes) -> None:
        if (guard := self._guards.get(slot)) is not None:
            guard.send([frame])
        else:
            self._untold.setdefault(slot, []).append(frame)

    def said(self, message: ToDriver) -> None:
        if isinstance(message, SlotLeaving):
            self.left(message.slot, message.error)
        elif isinstance(message, ToCoordinator):
            self._to_coordinator(message)
        elif isinstance(message, HasRead):
            self.read_backs.heard(message)
        elif isinstance(message, Threads | Samples):
            self.questions.heard(message)
        elif isinstance(message, Logged | FailedStep):
            self._heard(message)
        else:
            self._post(cast("JobEvent", message))

    def ended(self, wire: Wire) -> None:
        self._open.discard(wire)
        self._guards = {slot: each for slot, each in self._guards.items() if each is not wire}

    def left(self, slot: SlotId, error: TidegateError | None) -> None:
        self.read_backs.left(slot)
        if self._wires.pop(slot, None) is not None:
            self._post(SlotLeft(slot, error))


class _SlotHandler:
    def __init__(self, links: SlotLinks, wire: Wire) -> None:
        self._links = links
        self._wire = wire
        self._slot: SlotId | None = None

    def on_frame(self, frame: memoryview) -> None:
        message = cast("ToDriver", pickle.loads(frame))
        if isinstance(message, Offer):
            self._slot = message.slot
            self._links.offered(message, self._wire)
        elif isinstance(message, Pulse) and self._slot is None:
            self._links.guarded(message, self._wire)
            self._links.said(message)
        else:
            self._links.said(message)

    def on_closed(self, error: PeerLost | None) -> None:
        self._links.ended(self._wire)
        if self._slot is not None and error is not None:
            self._links.gone.broke(self._slot, error)


def _mismatch(offer: Offer, ours: Mapping[str, str]) -> NodeUnfit | None:
    """Differences between a slot's versions and ours, which must agree for the wire."""
    differing = [
        f"{name} {offer.versions.get(name, 'missing')} there, {ours[name]} here"
        for name in COMPARED
        if offer.versions.get(name) != ours[name]
    ]
    if not differing:
        return None
    return NodeUnfit(
        f"a slot on {offer.host} runs other versions: {'; '.join(differing)}",
        where=f"slot {offer.slot}",
        remedy="Give the executors the driver's Python and packages, for instance by "
        "spark.archives and PYSPARK_PYTHON.",
    )


def _from_thread(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Calls a function on the loop; does nothing once the loop has ended."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return


ASKED_MAX: Final = 3
"""So many slots of a machine are asked, as some may be in calls that last; the first answers."""

_Answer = asyncio.Future[TidegateError | None]


class ReadBacks:
    """Asks slots whether they can read a savepoint. send: brings a message to a slot."""

    def __init__(self, send: Callable[[SlotId, ToSlot], None]) -> None:
        self._send = send
        self._hosts: dict[SlotId, str] = {}
        self._numbers = count(1)
        self._asked: dict[tuple[int, SlotId], _Answer] = {}

    def came(self, slot: SlotId, host: str) -> None:
        self._hosts[slot] = host

    def left(self, slot: SlotId) -> None:
        """A slot cannot be asked any more, and will not answer."""
        self._hosts.pop(slot, None)
        for (_, asked), answer in self._asked.items():
            if asked == slot and not answer.done():
                answer.cancel()

    def heard(self, message: HasRead) -> None:
        """A slot answers; too late, perhaps."""
        answer = self._asked.get((message.number, message.slot))
        if answer is not None and not answer.done():
            answer.set_result(message.error)

    async def check(
        self,
        pointer: str,
        metadata: tuple[int, int],
        files: Mapping[str, int],
        *,
        timeout_ms: int,
    ) -> None:
        """Have a slot of each machine read a savepoint. metadata, files: as in `ReadBack`.

        Raises StorageFailed that names who cannot, or has not within the time.
        """
        message = ReadBack(next(self._numbers), pointer, metadata, files)
        answers: dict[str, dict[_Answer, SlotId]] = {}
        try:
            for slot, host in self._hosts.items():
                asked = answers.setdefault(host, {})
                if len(asked) < ASKED_MAX:
                    answer = asyncio.get_running_loop().create_future()
                    asked[answer] = slot
                    self._asked[message.number, slot] = answer
            for asked in answers.values():
                for slot in asked.values():
                    self._send(slot, message)
            async with asyncio.timeout(timeout_ms / 1000):
                for host, asked in answers.items():
                    await _first(host, asked, pointer)
        except TimeoutError as error:
            raise StorageFailed(
                f"No slot has read the savepoint back within {timeout_ms} ms; each is in a call",
                where=pointer,
            ) from error
        finally:
            for asked in answers.values():
                for answer, slot in asked.items():
                    answer.cancel()
                    self._asked.pop((message.number, slot), None)


async def _first(host: str, asked: Mapping[_Answer, SlotId], pointer: str) -> None:
    """Wait for the first answer of a machine; for none where all of its slots are gone."""
    waiting: Iterable[_Answer] = asked
    while waiting := [each for each in waiting if not each.cancelled()]:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for answer in done:
            if answer.cancelled():
                continue
            if (error := answer.result()) is not None:
                raise StorageFailed(
                    f"The savepoint cannot be read by slot {asked[answer]} on {host}, another "
                    f"process than its writers: {error.what}",
                    where=error.where or pointer,
                    remedy="Name a folder that all machines of the job share, and see whether each "
                    "of them has it mounted.",
                ) from error
            return


class Questions:
    """Asks slots what they answer at once. send: brings a message to a slot."""

    def __init__(self, send: Callable[[SlotId, ToSlot], None]) -> None:
        self._send = send
        self._numbers = count(1)
        self._asked: dict[tuple[int, SlotId], asyncio.Future[Threads | Samples]] = {}

    def heard(self, message: Threads | Samples) -> None:
        """A slot answers; too late, perhaps."""
        answer = self._asked.get((message.number, message.slot))
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def ask(
        self, slot: SlotId, question: Callable[[int], ToSlot], *, timeout_ms: int
    ) -> Threads | Samples:
        """Answer of a slot to a question with that number.

        Raises PeerLost if there is none in time.
        """
        number = next(self._numbers)
        answer = self._asked[number, slot] = asyncio.get_running_loop().create_future()
        try:
            self._send(slot, question(number))
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError as error:
            raise PeerLost(
                f"slot {slot} has not answered within {timeout_ms} ms; it is gone, or in a call "
                "that does not return"
            ) from error
        finally:
            del self._asked[number, slot]
