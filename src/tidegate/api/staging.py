"""Data that must be written before a source can read it."""

from __future__ import annotations

from typing import Protocol


class Staged(Protocol):
    """Files that are written once, before the job runs, for a source to read.

    A source that has some gives it as an attribute ``staged``; it lives in the driver as it is and
    is not shipped. The driver writes before it asks for slots, since these may take all that could
    write, tells the enumerator the place (``EnumeratorContext.staged``), and deletes the files when
    the job has ended for good and no checkpoint of it is kept.
    """

    def root(self, checkpoints: str | None) -> str:
        """Folder to write below. checkpoints: the job's checkpoint folder, if it has one.

        Raises ConfigError if there is none that all could reach.
        """
        ...

    def write(self, folder: str) -> None:
        """Writes the files into a new folder; blocks until done.

        Raises TidegateError if that fails, or was cancelled.
        """
        ...

    def cancel(self) -> None:
        """Ends a ``write`` that runs on another thread; may be called repeatedly."""
        ...
