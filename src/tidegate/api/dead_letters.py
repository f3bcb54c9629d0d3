"""Rows that could not be read or processed, and their way to whoever inspects them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from flinkformat.frozen import frozen
from tidegate.api.output_tag import OutputTag
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeAlias


@frozen
class DeadLetter:
    """A row that failed. where: the message, line or step. why: the error's text.

    raw: the bytes of what a source or schema could not read; None for a row of a step, which is the
    value.
    """

    where: str
    why: str
    raw: bytes | None = None
    value: Any = None


Malformed: TypeAlias = 'Literal["fail", "skip"] | OutputTag[DeadLetter]'
"""What becomes of what cannot be read: it fails the job, is counted, or goes to a side output."""


def checked_policy(policy: object, where: str) -> Malformed:
    """The policy. Raises ConfigError for an unknown one."""
    if isinstance(policy, OutputTag):
        return cast("OutputTag[DeadLetter]", policy)
    if policy == "fail":
        return "fail"
    if policy == "skip":
        return "skip"
    raise ConfigError(
        f"The policy is {policy!r}",
        where=where,
        remedy="Write 'fail', 'skip', or give an OutputTag for a side output of dead letters.",
    )
