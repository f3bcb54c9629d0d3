"""Every exception of Tidegate.

TidegateError                     carries what, where, remedy; pickles, since it crosses processes
├─ UserError                      the caller can put it right; exit code 2, HTTP 400
│  ├─ ConfigError                 an option, a path, an argument
│  ├─ GraphError                  a program that cannot become a job
│  ├─ BadRecord                   an input row that cannot be read, under the policy "fail"
│  ├─ UnsupportedKey              a key without a hash that is stable across processes
│  ├─ RescaleRefused              a running job cannot be given another parallelism
│  └─ RestoreRefused              a snapshot does not fit the program
│     ├─ SerializerIncompatible   state whose type has changed too far
│     ├─ OperatorMissing          state that no operator takes
│     └─ MaxParallelismChanged    key groups cannot be mapped
├─ UserCodeFailed                 a user's function raised
├─ CheckpointAborted              a checkpoint was given up; carries Flink's reason
├─ StopWithSavepointFailed        the savepoint is there, but the job has not stopped with it
├─ JobFailed                      the job ended in FAILED; carries the failure that ended it
├─ JobSuspended                   the job has stopped, to go on later; its checkpoints are there
├─ JobCanceled                    the job was ended from outside
├─ OutputClosed                   nobody reads any more what the job prints
├─ WorldError                     retried by policy
│  ├─ StorageFailed               bytes could not be read or written
│  │  ├─ FileMissing              there is no such file
│  │  └─ TooManyOpenFiles         there is no descriptor for another file or connection
│  ├─ PeerLost                    a connection broke
│  │  ├─ DriverUnreachable        a slot's process cannot connect to the driver
│  │  └─ DriverSilent             a driver is there, and does not answer
│  ├─ SlotLost                    a slot is gone
│  │  └─ NodeUnfit                it never came: the node's Python does not fit
│  ├─ SlotsMissing                the slots asked for did not come
│  └─ CommitFailed                a sink could not commit
├─ LeadershipLost                 somebody else leads this job: stop acting, delete nothing
├─ OutcomeUnknown                 a write may or may not have happened: delete nothing
└─ FormatError                    bytes that are not what they say

Beside ``AssertionError`` (a fault of our own) nothing else leaves the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from flinkformat.errors import ConfigError as ConfigError
from flinkformat.errors import DescribedError, UserError
from flinkformat.errors import FormatError as FormatError
from flinkformat.errors import GraphError as GraphError
from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TidegateError = DescribedError
"""The root of the tree: an error that says what happened, where, and what to do about it.

It stands in flinkformat, so that what reading Flink's format raises is one of ours.
"""


def with_article(kind: type) -> str:
    """A class as messages name it: ``an int``, ``a str``, ``None`` for the class of None."""
    if kind is type(None):
        return "None"
    return f"{'an' if kind.__name__[0] in 'aeioAEIO' else 'a'} {kind.__name__}"


def missing_attribute(kind: type, name: str, instead: Mapping[str, str]) -> AttributeError:
    """The error for a member that a class lacks; it names its replacement, or the nearest one.

    instead: advice, by the name of what is lacking.
    """
    from difflib import get_close_matches

    text = f"{kind.__name__!r} object has no attribute {name!r}"
    if name in instead:
        text += f"; {instead[name]}"
    elif not name.startswith("_"):
        alike = get_close_matches(name, [each for each in dir(kind) if each[0] != "_"], n=1)
        text += f"; did you mean {alike[0]!r}?" if alike else ""
    return AttributeError(text, name=name, obj=None)  # else Python guesses once more


class Guiding:
    """Base of what users hold: asked for a member that it lacks, it says which to take instead.

    _instead: advice, by the name of what is lacking.
    """

    __slots__ = ()
    _instead: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # a checker should flag what is not there

        def __getattr__(self, name: str) -> object:
            raise missing_attribute(type(self), name, self._instead)


class CallInterrupted(BaseException):
    """Raised inside of a user's function whose subtask is cancelled; passes `except Exception`."""


FROM_OUTSIDE = CallInterrupted, GeneratorExit, KeyboardInterrupt
"""What ends a call of a user's function and is not raised by the function itself."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and what led to it, each once: a program may ``raise error from error``."""
    seen = set[int]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__


def as_error(raised: BaseException) -> Exception:
    """An exception as an error that a future can hold and that does not end the loop."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    return RuntimeError(f"the call raised {raised!r}").with_traceback(raised.__traceback__)


class UnsupportedKey(UserError):
    """A key whose hash is not stable across processes."""


class NotCompiled(UserError):
    """The loops around user functions could not be compiled on this machine."""


class RescaleRefused(UserError):
    """A parallelism that a running job cannot be given."""


class UnpicklingRefused(UserError):
    """State names code, and nobody has said that it may run."""


class RestoreRefused(UserError):
    """A snapshot that does not fit the program."""


class SerializerIncompatible(RestoreRefused):
    """State whose type has changed too far."""


class OperatorMissing(RestoreRefused):
    """State in a snapshot that no operator of the program takes."""


class MaxParallelismChanged(RestoreRefused):
    """The number of key groups differs from the snapshot's."""


@frozen
class FailedCall:
    """The call of a user's function that failed. operator: its name.

    row: what it was given, or the first row of it; the time of a timer. name: of the call, where it
    was given no row. at: place of the row in its batch, where that is known.
    """

    operator: str
    row: object
    name: str
    at: int | None = None


class UserCodeFailed(TidegateError):
    """A user's function raised; ``trace`` is its traceback as text.

    call: which one; it stays in the process where it failed.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "", trace: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.trace = trace
        self.call: FailedCall | None = None

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.trace}" if self.trace else super().__str__()


class BadRecord(UserError):
    """An input row that cannot be read."""


class CheckpointAborted(TidegateError):
    """A checkpoint was given up.

    reason: the name of Flink's ``CheckpointFailureReason``, such as ``CHECKPOINT_EXPIRED``.
    """

    def __init__(self, reason: str, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.reason = reason


class StopWithSavepointFailed(TidegateError):
    """A job failed behind the savepoint with which it was to stop.

    savepoint: path of the savepoint, which is complete and can be started from.
    """

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", savepoint: str = ""
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.savepoint = savepoint


class JobFailed(TidegateError):
    """The job ended in FAILED; ``cause_text`` is the failure that ended it."""

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", cause_text: str = ""
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.cause_text = cause_text

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.cause_text}" if self.cause_text else super().__str__()


class JobSuspended(TidegateError):
    """The job has stopped without having ended: ``--from latest`` goes on with it.

    refused: the checkpoint that could not be restored, where that is why; else None.
    """

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", refused: int | None = None
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.refused = refused


class JobCanceled(TidegateError):
    """The job was ended from outside.

    output_closed: whether it was because nobody reads what it prints.
    """

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", output_closed: bool = False
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.output_closed = output_closed


class OutputClosed(TidegateError):
    """Nobody reads any more what the job prints."""


class WorldError(TidegateError):
    """Something outside the program failed; retried by policy."""


class StorageFailed(WorldError):
    """Bytes could not be read or written."""


class FileMissing(StorageFailed):
    """There is no such file."""


class TooManyOpenFiles(StorageFailed):
    """There is no descriptor for another file or connection."""


class PeerLost(WorldError):
    """A connection to a peer broke."""


class DriverUnreachable(PeerLost):
    """The process of a slot cannot connect to the driver."""


class DriverSilent(PeerLost):
    """A driver is there, and does not answer: it is stopped, or too busy."""


class SlotLost(WorldError):
    """A slot died, or its connection was lost for good."""


class NodeUnfit(SlotLost):
    """The Python of a slot's node, or what is installed for it, does not fit the driver's."""


class SlotsMissing(WorldError):
    """The slots that a job needs did not come in time."""


class CommitFailed(WorldError):
    """A sink could not commit what it had prepared."""


class LeadershipLost(TidegateError):
    """Somebody else leads this job: stop acting, delete nothing."""


class OutcomeUnknown(TidegateError):
    """A write may or may not have happened: delete nothing."""
