"""File descriptors of this process: how a shortage is put off, and which error reports it."""

from __future__ import annotations

import codecs
import errno
import sys
from typing import Final

from tidegate.errors import TidegateError, TooManyOpenFiles, UserCodeFailed, causes

OPEN_FILES_MAX: Final = 65_536
"""More are not asked for: programs that functions start may go through all that they could have."""

SHORTAGES: Final = {errno.EMFILE: "this process", errno.ENFILE: "this machine"}
"""Errors of the system that say so, with whose limit it is."""

REMEDY: Final = (
    "Raise the limit of open files (ulimit -Hn, or LimitNOFILE of systemd), or find the code that "
    "opens files without closing them."
)

_CODECS: Final = ("ascii", "latin-1", "idna", "utf-16-le", "utf-16-be")


def make_room() -> None:
    """Raises the limit of open files to what is allowed; loads modules while they can be opened."""
    for codec in _CODECS:  # modules, which Python would read when they are first used
        codecs.lookup(codec)
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def shortage(error: BaseException) -> TooManyOpenFiles | None:
    """TooManyOpenFiles if the error or its cause is a shortage of descriptors; else None."""
    for cause in causes(error):
        if isinstance(cause, TooManyOpenFiles):
            return cause
        if isinstance(cause, OSError) and (whose := SHORTAGES.get(cause.errno or 0)):
            told = TooManyOpenFiles(f"{whose} has no descriptor left: {cause}", remedy=REMEDY)
            told.__cause__ = error
            return told
    return None


def as_ours(
    error: Exception, otherwise: type[TidegateError] = UserCodeFailed, *, where: str = ""
) -> TidegateError:
    """The error itself if it is one of ours, else one of ours that names it.

    otherwise: what it becomes unless it is a shortage. where: the place, unless it says one itself.
    """
    if isinstance(error, TidegateError):
        ours = error
    else:
        ours = shortage(error) or otherwise(f"{type(error).__name__}: {error}")
    ours.where = ours.where or where
    return ours
