"""Futures of those who wait for what they have asked of the job."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from tidegate.errors import JobCanceled, TidegateError

if TYPE_CHECKING:
    from concurrent.futures import Future


class Answers:
    """Checkpoints and rescales that somebody waits for, by the numbers of their requests."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, Future[Any]] = {}

    def expect(self, done: Future[Any]) -> int:
        """A number for the request whose answer belongs to this future."""
        request = next(self._numbers)
        self._waiting[request] = done
        return request

    def give(self, request: int, answer: object) -> None:
        """Answers a request, a TidegateError as a failure; whoever asked may wait no more."""
        done = self._waiting.pop(request, None)
        if done is None or done.done():
            return
        if isinstance(answer, TidegateError):
            done.set_exception(answer)
        else:
            done.set_result(answer)

    def end(self, error: TidegateError | None) -> None:
        """The job has ended: what it has not answered it never will."""
        for request in list(self._waiting):
            self.give(request, error or JobCanceled("the job has ended"))
