"""Logging set-up of a program, passed to its slots, so that functions log alike."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, TextIO

from tidegate.model.control import ProgramLogs

if TYPE_CHECKING:
    from collections.abc import Generator


def logs_of_program() -> ProgramLogs | None:
    """Logging set-up of this process; None without a handler that writes to a standard stream.

    Handlers of other kinds, such as files, stay with the program: two processes would write over
    each other.
    """
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler, logging.StreamHandler):
            stream: TextIO = handler.stream
            if stream in (sys.stdout, sys.stderr):
                formatter = handler.formatter
                return ProgramLogs(
                    stream is sys.stdout,
                    None if formatter is None else formatter._fmt,  # pyright: ignore[reportPrivateUsage]
                    None if formatter is None else formatter.datefmt,
                    _levels(root),
                )
    return None


def _levels(root: logging.Logger) -> dict[str, int]:
    known = root.manager.loggerDict.values()
    loggers = [root, *(each for each in known if isinstance(each, logging.Logger))]
    return {each.name: each.level for each in loggers if each.level != logging.NOTSET}


def _log_as_program(logs: ProgramLogs) -> None:
    handler = logging.StreamHandler(sys.stdout if logs.to_stdout else sys.stderr)
    if logs.format is not None:
        handler.setFormatter(logging.Formatter(logs.format, logs.date_format, validate=False))
    logging.getLogger().addHandler(handler)
    for name, level in logs.levels.items():
        logging.getLogger(None if name == "root" else name).setLevel(level)


@contextlib.contextmanager
def logging_as(logs: ProgramLogs | None) -> Generator[None]:
    """Within this block, the process logs like the program; afterwards it belongs to nobody."""
    if logs is None:
        yield
        return
    root = logging.getLogger()
    handlers, levels = list(root.handlers), _levels(root)
    _log_as_program(logs)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for name in logs.levels:
            logger = logging.getLogger(None if name == "root" else name)
            logger.setLevel(levels.get(name, logging.NOTSET))
