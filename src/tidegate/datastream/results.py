"""A stream's records on their way back to the program."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from tidegate.api.client import JobClient

T = TypeVar("T")

CANCEL_TIMEOUT_S: Final = 30.0
"""How long closing waits for the job to end."""


class CloseableIterator(Generic[T]):
    """Records of a running job; leaving its ``with`` block cancels the job if it still runs."""

    def __init__(self, client: JobClient, name: str) -> None:
        self._client = client
        self._rows = cast("Iterator[T]", iter(client.collected(name)))
        self._ended = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next()

    def next(self) -> T:
        """The next record, waiting for it. Raises StopIteration, or what ended the job."""
        if self._ended:
            raise StopIteration
        try:
            return next(self._rows)
        except StopIteration:
            self._ended = True
            self._client.get_job_execution_result().result()
            raise
        except TidegateError:
            self._ended = True
            raise

    def take(self, count: int) -> list[T]:
        """The next records, at most so many."""
        return list(islice(self, count))

    def get_job_client(self) -> JobClient:
        """The job that the records come from."""
        return self._client

    def close(self) -> None:
        """Cancels the job, unless it has ended. Raises JobFailed where it failed unseen."""
        if not self._ended:
            self._ended = True
            self._client.cancel().result(timeout=CANCEL_TIMEOUT_S)

    def __enter__(self) -> CloseableIterator[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
