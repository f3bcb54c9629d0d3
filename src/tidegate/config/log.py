"""Logging of a process: the only place that makes a logger; all else receives one.

A slot logs as the program does, so that functions log alike wherever they run."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from functools import partial
from textwrap import indent
from typing import TYPE_CHECKING, Final, TextIO, cast

from tidegate.errors import ConfigError
from tidegate.model.control import ProgramLogs

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

LEVEL_VARIABLE: Final = "TIDEGATE_LOG_LEVEL"
"""Environment variable with the least level that is logged: debug, info, warning or error."""

LEVELS: Final = ("debug", "info", "warning", "error")

HEARD_LEVELS: Final = {
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}
"""Methods of loggers that an overheard log tells of, with their levels."""

_LAID_OUT: Final = {"exception", "stack"}
"""Facts that structlog itself prints below the line."""


def process_log() -> FilteringBoundLogger:
    """Logger of this process: the program's configuration, else standard error.

    Standard output belongs to the program and to its print sinks. Unless told otherwise by
    ``TIDEGATE_LOG_LEVEL`` only what somebody should act on is logged.
    """
    _least_level()
    return cast("FilteringBoundLogger", _LateLog({}))


class _LateLog:
    """Loads structlog once there is something to log, which few processes have.

    Loading it would be a tenth of all that a first program does. facts: bound so far.
    """

    def __init__(self, facts: Mapping[str, object]) -> None:
        self._facts = facts

    def bind(self, **facts: object) -> _LateLog:
        return _LateLog({**self._facts, **facts})

    def debug(self, event: str, **facts: object) -> None:
        if _may_be_logged("debug"):
            self._logger().debug(event, **facts)

    def info(self, event: str, **facts: object) -> None:
        if _may_be_logged("info"):
            self._logger().info(event, **facts)

    def __getattr__(self, method: str) -> object:
        if method.startswith("_"):  # of protocols such as pickling, not of loggers
            raise AttributeError(method)
        return getattr(self._logger(), method)

    def _logger(self) -> FilteringBoundLogger:
        try:
            return _loaded().bind(**self._facts)
        except OSError:  # no descriptor is left, or memory: a reason to log, and not to fail
            return cast("FilteringBoundLogger", _BareLog(self._facts))


class _BareLog:
    """Writes lines without structlog, where that cannot be loaded. facts: bound so far."""

    def __init__(self, facts: Mapping[str, object]) -> None:
        self._facts = facts

    def __getattr__(self, method: str) -> Callable[..., None]:
        return partial(self._write, method)

    def _write(self, method: str, event: str, **facts: object) -> None:
        told = " ".join(f"{name}={fact}" for name, fact in {**self._facts, **facts}.items())
        print_line(sys.stderr, f"[{method}] {event} {told}")


def print_line(stream: TextIO | None, text: str) -> None:
    """Prints a line, with characters escaped that the stream cannot encode.

    stream: of the process; None where it has none, as without a console. Where nobody reads any
    more the line is lost, for whoever has printed it cannot know.
    """
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        try:
            stream.write(f"{text}\n")
        except UnicodeEncodeError:
            encoding = stream.encoding
            stream.write(f"{text.encode(encoding, 'backslashreplace').decode(encoding)}\n")
        stream.flush()


def _loaded() -> FilteringBoundLogger:
    """A logger of structlog. Raises OSError if that cannot be loaded now."""
    import structlog

    if structlog.is_configured():
        return structlog.get_logger()
    # A process without a console may have no standard error.
    printing = structlog.ReturnLogger() if sys.stderr is None else structlog.PrintLogger(sys.stderr)
    return structlog.wrap_logger(
        printing,
        wrapper_class=structlog.make_filtering_bound_logger(_least_level()),
        processors=[*structlog.get_config()["processors"][:-1], _Told()],
    )


def _may_be_logged(level: str) -> bool:
    # A program that has not loaded structlog cannot have configured it.
    return "structlog" in sys.modules or LEVELS.index(level) >= LEVELS.index(_least_level())


def _least_level() -> str:
    level = os.environ.get(LEVEL_VARIABLE, "warning").lower()
    if level not in LEVELS:
        raise ConfigError(
            f"{level!r} is not a log level",
            where=f"the environment variable {LEVEL_VARIABLE}",
            remedy=f"Use one of: {', '.join(LEVELS)}.",
        )
    return level


class _Told:
    """Formats one line; facts of several lines, such as errors, follow it; empty ones are left out.

    Tracebacks are without the values of variables, of which some are secret.
    """

    def __init__(self) -> None:
        from structlog.dev import ConsoleRenderer, plain_traceback

        # https://no-color.org
        colors = sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._line = ConsoleRenderer(colors=colors, exception_formatter=plain_traceback)

    def __call__(self, logger: WrappedLogger, method: str, facts: EventDict) -> str:
        facts = {name: fact for name, fact in facts.items() if fact not in (None, "")}
        below = [
            indent(f"{name}: {facts.pop(name)}", "    ")
            for name, fact in list(facts.items())
            if isinstance(fact, str) and "\n" in fact and name not in _LAID_OUT
        ]
        return "\n".join([str(self._line(logger, method, facts)), *below])


def in_words(event: str, facts: Mapping[str, object]) -> str:
    """An event with its facts, those of several lines below it; empty ones are left out."""
    texts = {name: str(fact) for name, fact in facts.items() if fact not in (None, "")}
    below = {name: text for name, text in texts.items() if "\n" in text}
    beside = "".join(f" {name}={text}" for name, text in texts.items() if name not in below)
    return f"{event}{beside}" + "".join(
        f"\n    {name}: " + "\n    ".join(text.splitlines()) for name, text in below.items()
    )


class _OverheardLog:
    """Writes to a log, and tells somebody each event from information on, with its facts.

    They are told even if the log leaves them out. hear: gets level, event and facts.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        hear: Callable[[str, str, Mapping[str, object]], None],
        facts: Mapping[str, object],
    ) -> None:
        self._log = log
        self._hear = hear
        self._facts = facts

    def bind(self, **facts: object) -> _OverheardLog:
        return _OverheardLog(self._log.bind(**facts), self._hear, {**self._facts, **facts})

    def __getattr__(self, method: str) -> object:
        write = getattr(self._log, method)
        if method not in HEARD_LEVELS:
            return write

        def told(event: str, **facts: object) -> None:
            known = {**self._facts, **facts}
            if method == "exception":
                known["exception"] = traceback.format_exc()
            self._hear(method, event, known)
            write(event, **facts)

        return told


def overheard(
    log: FilteringBoundLogger, hear: Callable[[str, str, Mapping[str, object]], None]
) -> FilteringBoundLogger:
    """A logger that writes to another one, and tells somebody what it is told."""
    return cast("FilteringBoundLogger", _OverheardLog(log, hear, {}))


class _LaterLog:
    """Has lines written later, perhaps by another thread. later: takes calls that write a line."""

    def __init__(
        self, log: FilteringBoundLogger, later: Callable[[Callable[[], object]], None]
    ) -> None:
        self._log = log
        self._later = later

    def bind(self, **facts: object) -> _LaterLog:
        return _LaterLog(self._log.bind(**facts), self._later)

    def __getattr__(self, method: str) -> object:
        if method != "debug" and method not in HEARD_LEVELS:
            return getattr(self._log, method)

        def told(event: str, **facts: object) -> None:
            if method == "exception" or facts.get("exc_info") is True:
                facts["exc_info"] = sys.exception()  # another thread handles none
            # Looked up when it is written: loading structlog takes its time too.
            self._later(lambda: getattr(self._log, method)(event, **facts))

        return told


def written_later(
    log: FilteringBoundLogger, later: Callable[[Callable[[], object]], None]
) -> FilteringBoundLogger:
    """A logger for a loop, which must not wait for whoever reads what is logged."""
    return cast("FilteringBoundLogger", _LaterLog(log, later))


def logs_of_program() -> ProgramLogs:
    """Logging set-up of this process: levels, and a handler that writes to a standard stream.

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
    return ProgramLogs(None, None, None, _levels(root))


def _levels(root: logging.Logger) -> dict[str, int]:
    known = root.manager.loggerDict.values()
    loggers = [root, *(each for each in known if isinstance(each, logging.Logger))]
    return {each.name: each.level for each in loggers if each.level != logging.NOTSET}


def _log_as_program(logs: ProgramLogs, streams: Callable[[bool], TextIO]) -> None:
    if logs.to_stdout is not None:
        handler = logging.StreamHandler(streams(logs.to_stdout))
        if logs.format is not None:
            handler.setFormatter(logging.Formatter(logs.format, logs.date_format, validate=False))
        logging.getLogger().addHandler(handler)
    for name, level in logs.levels.items():
        logging.getLogger(None if name == "root" else name).setLevel(level)


@contextlib.contextmanager
def logging_as(
    logs: ProgramLogs | None,
    streams: Callable[[bool], TextIO],
    wanted: Mapping[str, int],
) -> Generator[None]:
    """Within this block, the process logs like the program; afterwards it belongs to nobody.

    streams: standard output if True, else standard error. wanted: levels of loggers, by name, that
    go before those of the program; "" is the root.
    """
    if logs is None and not wanted:
        yield
        return
    root = logging.getLogger()
    handlers, levels = list(root.handlers), _levels(root)
    changed = dict.fromkeys(name or "root" for name in wanted)
    if logs is not None:
        _log_as_program(logs, streams)
        changed |= dict.fromkeys(logs.levels)
    for name, level in wanted.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for name in changed:
            logger = logging.getLogger(None if name == "root" else name)
            logger.setLevel(levels.get(name, logging.NOTSET))
