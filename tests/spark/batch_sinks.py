"""A sink for tests of what a batch's driver does with one."""

from collections.abc import Collection, Sequence

from tidegate.api.sink import Prepared, WriterContext
from tidegate.model.ids import JobId


class Table:
    """A sink whose commits, and whatever else a test replaces, do nothing."""

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "Table":
        return self

    def committer(self) -> "Table":
        return self

    def write(self, batch: object) -> None: ...

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        return Prepared((b"rows",))

    def snapshot(self, checkpoint: int) -> Sequence[bytes]:
        return ()

    def commit(self, committables: Sequence[bytes]) -> None: ...

    def close(self) -> None: ...

    def clean_up(self, jobs: Collection[JobId]) -> None: ...
