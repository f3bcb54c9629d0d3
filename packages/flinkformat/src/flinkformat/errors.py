"""Errors of this package: each says what happened, where, and what to do about it."""

from __future__ import annotations


class DescribedError(Exception):
    """An error that says what happened, where, and what to do about it.

    what: one sentence on what happened. where: a file, an operator, an option; may be empty.
    remedy: what the reader can do; may be empty.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"  where: {self.where}")
        if self.remedy:
            parts.append(f"  what to do: {self.remedy}")
        return "\n".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(
    kind: type[DescribedError], args: tuple[object, ...], fields: dict[str, object]
) -> DescribedError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class UserError(DescribedError):
    """Something the caller can put right."""


class ConfigError(UserError):
    """An option, a path or an argument that cannot be used."""


class GraphError(UserError):
    """A program that cannot become a job."""


class FormatError(DescribedError):
    """Bytes that are not what they say.

    offset: position of the first wrong byte, in bytes from the start; -1 where there is none.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        remedy: str = "",
        offset: int = -1,
        expected: str = "",
        found: str = "",
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.offset = offset
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        parts = [super().__str__()]
        if self.offset >= 0:
            parts.append(f"  at byte: {self.offset}")
        if self.expected:
            parts.append(f"  expected: {self.expected}")
        if self.found:
            parts.append(f"  found: {self.found}")
        return "\n".join(parts)
