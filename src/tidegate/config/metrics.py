"""Metrics and spans: who reports them, and how many metrics functions may have.

Keys of a reporter begin with its name: ``metrics.reporter.<name>.<key>``, or ``traces.reporter.…``
for spans. They and the classes that choose a reporter are Flink's; each of these has a short name
too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVar

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import (
    BooleanType,
    DurationType,
    IntegerType,
    ListType,
    MapType,
    PortRangeType,
    TextType,
)
from tidegate.errors import ConfigError
from tidegate.model.metrics import MetricKind
from tidegate.model.settings import (
    JsonLinesSettings,
    MetricFilter,
    OpenTelemetrySettings,
    PrometheusPushSettings,
    PrometheusSettings,
    ReporterSettings,
    ReporterTarget,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidegate.config.option import ValueType

_TEXT: Final = TextType()
_TRUTH: Final = BooleanType()
_LIST: Final = ListType()

USER_METRICS_MAX: Final = ConfigOption(
    "tidegate.metrics.user-max",
    IntegerType(at_least=1),
    1_000,
    "Number of metrics that the functions of one step may have in one subtask. Those beyond are "
    "not reported.",
)
REPORTERS: Final[ConfigOption[tuple[str, ...]]] = ConfigOption(
    "metrics.reporters",
    ListType(),
    (),
    "Names of the reporters to use; by default, all that are set. The settings of one begin with "
    "`metrics.reporter.<name>.`; docs/guides/metrics.md lists them.",
)

TRACE_REPORTERS: Final[ConfigOption[tuple[str, ...]]] = ConfigOption(
    "traces.reporters",
    ListType(),
    (),
    "Names of the reporters of spans to use, one span for each checkpoint and each start of the "
    "subtasks. The settings of one begin with `traces.reporter.<name>.`; docs/guides/metrics.md "
    "lists them. 'file' needs none but tidegate.traces.file.",
)
TRACE_FILE: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.traces.file",
    TextType(),
    None,
    "File on the driver's machine to which the reporter 'file' appends each span, a line of JSON.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    REPORTERS,
    USER_METRICS_MAX,
    TRACE_REPORTERS,
    TRACE_FILE,
)

_KEY: Final = re.compile(r"(metrics|traces)\.reporter\.(?P<name>[^.]+)\.(?P<key>.+)")
_PACKAGE: Final = "org.apache.flink.metrics."

T = TypeVar("T")


class KeyedConfig(ReadableConfig, Protocol):
    """A configuration whose keys can be listed, for keys that contain a name."""

    def key_set(self) -> set[str]: ...

    def get_string(self, key: str, default_value: str) -> str: ...


def reporter_settings(configuration: KeyedConfig) -> tuple[ReporterSettings, ...]:
    """The reporters of a job's metrics. Raises ConfigError for what does not make one."""
    given = _given(configuration, "metrics")
    names = _named(configuration.get(REPORTERS)) or list(given)
    return tuple(
        _reporter(name, _Given("metrics", name, given.get(name, {}), "metrics")) for name in names
    )


def span_reporters(
    configuration: KeyedConfig,
) -> tuple[JsonLinesSettings | OpenTelemetrySettings, ...]:
    """The reporters of a job's spans. Raises ConfigError for what does not make one."""
    given = _given(configuration, "traces")
    return tuple(
        _file_of_spans(configuration)
        if name == "file" and name not in given
        else _span_reporter(_Given("traces", name, given.get(name, {}), "spans"))
        for name in _named(configuration.get(TRACE_REPORTERS)) or list(given)
    )


def is_of_reporter(key: str) -> bool:
    """True for a setting of a reporter, whose key contains the reporter's name."""
    return _KEY.fullmatch(key) is not None


def _given(configuration: KeyedConfig, subject: str) -> dict[str, dict[str, str]]:
    given: dict[str, dict[str, str]] = {}
    for key in sorted(configuration.key_set()):
        if (parts := _KEY.fullmatch(key)) is not None and key.startswith(subject):
            given.setdefault(parts["name"], {})[parts["key"]] = configuration.get_string(key, "")
    return given


def _named(listed: Iterable[str]) -> list[str]:
    names = (name.strip() for item in listed for name in item.split(","))
    return list(dict.fromkeys(filter(None, names)))


class _Given:
    """Settings of one reporter, which are read key by key. what: it reports, for messages."""

    def __init__(self, subject: str, name: str, texts: Mapping[str, str], what: str) -> None:
        self._prefix = f"{subject}.reporter.{name}."
        self._texts = texts
        self._what = what
        self._read: list[str] = []

    def get(self, key: str, type: ValueType[T], default: T) -> T:
        self._read.append(key)
        if key not in self._texts:
            return default
        return ConfigOption(self._prefix + key, type, default, "").parse(self._texts[key])

    def needed(self, key: str) -> str:
        """A text that has to be set. Raises ConfigError."""
        text = self.get(key, _TEXT, "")
        if not text:
            raise ConfigError(
                f"A reporter of {self._what} is set without {key!r}",
                remedy=f"Set {self._prefix}{key}.",
            )
        return text

    def filters(self, key: str, default: tuple[str, ...]) -> tuple[MetricFilter, ...]:
        """Filters as Flink writes them: ``<scope>[:<name>[,<name>][:<kind>[,<kind>]]]``."""
        return tuple(self._filter(key, text) for text in self.get(key, _LIST, default))

    def _filter(self, key: str, text: str) -> MetricFilter:
        scope, names, kinds, *_ = (*text.split(":"), "*", "*")
        every = tuple(kind.value for kind in MetricKind)
        wanted = every if kinds in ("", "*") else tuple(kinds.lower().split(","))
        for kind in wanted:
            if kind not in every:
                raise ConfigError(
                    f"{self._prefix}{key} has {text!r}, and {kind!r} is no kind of metrics",
                    remedy=f"Write {', '.join(every)}, or '*' for all of them.",
                )
        return MetricFilter(scope or "*", tuple((names or "*").split(",")), wanted)

    def check_all_read(self) -> None:
        """Raises ConfigError for a key that this kind of reporter does not know."""
        for key in self._texts:
            if key not in self._read:
                raise ConfigError(
                    f"There is no option {self._prefix}{key}",
                    remedy=f"This kind of reporter has {', '.join(sorted(self._read))}.",
                )

    def refuse_kind(self, text: str, kinds: Iterable[str]) -> NoReturn:
        raise ConfigError(
            f"{self._prefix}factory.class is {text!r}, which is no reporter of {self._what}",
            remedy=f"Write one of {', '.join(kinds)}, or Flink's class for one of them.",
        )


def _reporter(name: str, given: _Given) -> ReporterSettings:
    text = given.needed("factory.class")
    make = _KINDS.get(text) or _CLASSES.get(text) or given.refuse_kind(text, _KINDS)
    made = ReporterSettings(
        name,
        make(given),
        interval_ms=given.get("interval", DurationType(at_least_ms=100), 10_000),
        excluded_variables=given.get("scope.variables.excludes", _LIST, ()),
        additional_variables=given.get("scope.variables.additional", MapType(), {}),
        includes=given.filters("filter.includes", ("*",)),
        excludes=given.filters("filter.excludes", ()),
    )
    given.check_all_read()
    return made


def _span_reporter(given: _Given) -> JsonLinesSettings | OpenTelemetrySettings:
    text = given.needed("factory.class")
    made = (_SPAN_KINDS.get(text) or given.refuse_kind(text, list(_SPAN_KINDS)[:2]))(given)
    given.check_all_read()
    return made


def _file_of_spans(configuration: ReadableConfig) -> JsonLinesSettings:
    path = configuration.get(TRACE_FILE)
    if path is None:
        raise ConfigError(
            "Spans are set to be written to a file, but no path is set",
            where=TRACE_REPORTERS.key,
            remedy=f"Set {TRACE_FILE.key}.",
        )
    return JsonLinesSettings(str(Path(path).absolute()))


def _prometheus(given: _Given) -> PrometheusSettings:
    return PrometheusSettings(
        given.get("port", PortRangeType(), (9249, 9249)),
        given.get("host", _TEXT, "localhost"),
        filters_labels=given.get("filterLabelValueCharacters", _TRUTH, True),
    )


def _push(given: _Given) -> PrometheusPushSettings:
    pairs = given.get("groupingKey", _TEXT, "").split(";")
    return PrometheusPushSettings(
        given.needed("hostUrl"),
        given.get("jobName", _TEXT, ""),
        {key: value for key, _, value in (pair.partition("=") for pair in pairs) if key},
        random_suffix=given.get("randomJobNameSuffix", _TRUTH, True),
        deletes=given.get("deleteOnShutdown", _TRUTH, True),
        filters_labels=given.get("filterLabelValueCharacters", _TRUTH, True),
    )


def _opentelemetry(given: _Given) -> OpenTelemetrySettings:
    return OpenTelemetrySettings(
        given.needed("exporter.endpoint"),
        given.get("service.name", _TEXT, "tidegate"),
        given.get("service.version", _TEXT, ""),
        given.get("exporter.timeout", DurationType(at_least_ms=1), 10_000),
    )


def _json_lines(given: _Given) -> JsonLinesSettings:
    return JsonLinesSettings(str(Path(given.needed("path")).absolute()))


_KINDS: Final[Mapping[str, Callable[[_Given], ReporterTarget]]] = {
    "prometheus": _prometheus,
    "prometheus-push": _push,
    "opentelemetry": _opentelemetry,
    "json-lines": _json_lines,
}
_CLASSES: Final = {
    f"{_PACKAGE}prometheus.PrometheusReporterFactory": _prometheus,
    f"{_PACKAGE}prometheus.PrometheusPushGatewayReporterFactory": _push,
    f"{_PACKAGE}otel.OpenTelemetryMetricReporterFactory": _opentelemetry,
}
_SPAN_KINDS: Final[Mapping[str, Callable[[_Given], JsonLinesSettings | OpenTelemetrySettings]]] = {
    "json-lines": _json_lines,
    "opentelemetry": _opentelemetry,
    "org.apache.flink.traces.otel.OpenTelemetryTraceReporterFactory": _opentelemetry,
}
