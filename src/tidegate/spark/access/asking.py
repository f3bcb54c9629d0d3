"""Calls of Spark that may hang for minutes, or for ever, made on threads of their own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWERED_WITHIN_S: Final = 10.0
"""How long Spark may take to answer: Connect's client tries for minutes to reach a dead server."""

_HINT_WITHIN_S: Final = 5.0


def within_limit(
    call: Callable[[], object],
    problems: list[Exception] | None = None,
    *,
    limit_s: float = ANSWERED_WITHIN_S,
) -> bool:
    """Calls Spark; False if it does not answer. One that is gone has ended our jobs.

    problems: gets the exception that the call ends with, if any.
    """
    asked = ask(call, [] if problems is None else problems)
    asked.join(limit_s)
    return not asked.is_alive()


def ask(call: Callable[[], object], problems: list[Exception]) -> threading.Thread:
    """Calls Spark on a thread, which is left to itself. problems: as of `within_limit`."""

    def quietly() -> None:
        try:
            call()
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=quietly, name="tidegate-asks-spark", daemon=True)
    thread.start()
    return thread


class Question:
    """A question of a coroutine. answer: the latest, empty before."""

    def __init__(self, within_s: float = _HINT_WITHIN_S) -> None:
        self.answer = ""
        self._within_s = within_s
        self._asking: threading.Thread | None = None

    async def asked(self, call: Callable[[], str]) -> str:
        """Ask, and wait for a few seconds; until Spark has answered it is not asked again.

        call: raises OSError or AttributeError where Spark is gone, which is no answer.
        """
        if self._asking is None or not self._asking.is_alive():
            self._asking = ask(lambda: self._answered(call), [])
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._asking.join, self._within_s)
        return self.answer

    def _answered(self, call: Callable[[], str]) -> None:
        with contextlib.suppress(AttributeError, OSError):
            self.answer = call()
