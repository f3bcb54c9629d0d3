"""Patience with stores: a call that does not return is told of, and one for a record given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidegate.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    import structlog

    from tidegate.ha.chain import HaStore

T = TypeVar("T")

TOLD_S: Final = 10.0
"""A call that has not returned by then is told of, and again when it has taken twice as long."""

LIMIT_S: Final = 30.0
"""A call for a record that has not returned by then has failed, though it may happen yet."""

HUNG_MAX: Final = 3
"""Failed calls that may be under way: each holds a thread of the driver."""

_REMEDY: Final = "Check that it can be reached, and that the mount of its folder answers."


async def told(
    answer: asyncio.Future[T],
    what: str,
    where: str,
    log: structlog.typing.FilteringBoundLogger,
    *,
    told_s: float = TOLD_S,
    limit_s: float = float("inf"),
) -> bool:
    """Waits for a store's answer, and tells of it while it does not come; false after the limit.

    what: the call. where: the place that it concerns. told_s: above 0.
    """
    waited_s = 0.0
    try:
        while not answer.done() and waited_s < limit_s:
            until_s = min(max(2 * waited_s, told_s), limit_s)
            await asyncio.wait({answer}, timeout=until_s - waited_s)
            waited_s = until_s
            if not answer.done():
                log.warning(
                    f"a store does not answer. {_REMEDY}",
                    call=what,
                    where=where,
                    for_s=int(waited_s),
                )
    except asyncio.CancelledError:
        answer.cancel()
        raise
    return answer.done()


class PatientStore:
    """A store of record chains whose calls fail if they do not return in time.

    Such a call may happen yet, like any that raises StorageFailed. While too many are under way,
    further ones fail at once.
    """

    def __init__(
        self,
        store: HaStore,
        log: structlog.typing.FilteringBoundLogger,
        *,
        told_s: float = TOLD_S,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._store = store
        self._log = log
        self._told_s = told_s
        self._limit_s = limit_s
        self._hung: set[asyncio.Future[Any]] = set()

    async def create(self, path: str, data: bytes) -> bool:
        return await self._within("create", path, lambda: self._store.create(path, data))

    async def read(self, path: str) -> bytes | None:
        return await self._within("read", path, lambda: self._store.read(path))

    async def list(self, prefix: str) -> list[str]:
        return await self._within("list", prefix, lambda: self._store.list(prefix))

    async def delete(self, paths: Iterable[str]) -> None:
        if doomed := list(paths):
            await self._within("delete", doomed[0], lambda: self._store.delete(doomed))

    async def _within(self, what: str, where: str, call: Callable[[], Awaitable[T]]) -> T:
        if len(self._hung) >= HUNG_MAX:
            raise _unanswered(f"{len(self._hung)} earlier calls have not returned", what, where)
        answer = asyncio.ensure_future(call())
        limits = {"told_s": self._told_s, "limit_s": self._limit_s}
        if await told(answer, what, where, self._log, **limits):
            return answer.result()
        self._hung.add(answer)
        answer.add_done_callback(self._returned)
        raise _unanswered(f"it has not returned for {self._limit_s:g} s", what, where)

    def _returned(self, answer: asyncio.Future[Any]) -> None:
        self._hung.discard(answer)
        if not answer.cancelled():
            answer.exception()  # looked at, for nobody else will


def _unanswered(why: str, what: str, where: str) -> StorageFailed:
    return StorageFailed(
        f"The store of the job's records does not answer a call to {what}: {why}",
        where=where,
        remedy=_REMEDY,
    )
