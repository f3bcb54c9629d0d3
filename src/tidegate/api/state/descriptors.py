"""Descriptors of state: its name, its type and how long it lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, overload

from flinkformat.frozen import frozen
from tidegate.config.spans import Span, millis_of
from tidegate.config.values import span_ms
from tidegate.errors import ConfigError
from tidegate.model.duration import Duration, Time
from tidegate.typeinfo.hints import declared_type

_WHERE: Final = "StateTtlConfig"
_COMPACTION_AFTER: Final = Duration.of_days(30)


@frozen
class StateTtlConfig:
    """Time to live of keyed state, in processing time; made by `new_builder`.

    A value is expired when the time is at or past its last update plus ``ttl``. Elements of a list
    and entries of a map expire one by one. Raises ConfigError for a ``ttl`` below one millisecond.

    >>> StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
    """

    Builder: ClassVar[type[StateTtlConfigBuilder]]

    class UpdateType(Enum):
        """Accesses that renew a value. Disabled: state does not expire."""

        Disabled = 0
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Visibility of expired values that no clean-up has removed yet."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """Clock of the time to live; always processing time."""

        ProcessingTime = 0

    @frozen
    class IncrementalCleanupStrategy:
        """Checks a few entries on each access. cleanup_size: number of entries.

        Entries are looked at on access only, whatever ``every_record`` says.
        """

        cleanup_size: int
        every_record: bool = False

        def __post_init__(self) -> None:
            _check_positive("cleanup_size", self.cleanup_size)

        def get_cleanup_size(self) -> int:
            """Number of entries checked on each access."""
            return self.cleanup_size

        def run_cleanup_for_every_record(self) -> bool:
            """True if each record was asked to count as an access."""
            return self.every_record

    @frozen
    class RocksdbCompactFilterCleanupStrategy:
        """Clean-up by RocksDB's compactions; without effect on the HashMap backend."""

        query_time_after_num_entries: int
        periodic_compaction_time: Duration = _COMPACTION_AFTER

        def __post_init__(self) -> None:
            _check_positive("query_time_after_num_entries", self.query_time_after_num_entries)

        def get_query_time_after_num_entries(self) -> int:
            """Number of entries after which the filter reads the clock again."""
            return self.query_time_after_num_entries

        def get_periodic_compaction_time(self) -> Duration:
            """Age of a file at which it is compacted only for clean-up."""
            return self.periodic_compaction_time

    @frozen
    class CleanupStrategies:
        """Removal of expired state other than when it is read."""

        full_snapshot: bool = False
        background: bool = True
        incremental: StateTtlConfig.IncrementalCleanupStrategy | None = None
        compaction_filter: StateTtlConfig.RocksdbCompactFilterCleanupStrategy | None = None

        def in_full_snapshot(self) -> bool:
            """True if snapshots leave expired entries out."""
            return self.full_snapshot

        def is_cleanup_in_background(self) -> bool:
            """True if the backend cleans up in its own way without other requests."""
            return self.background

        def get_incremental_cleanup_strategy(
            self,
        ) -> StateTtlConfig.IncrementalCleanupStrategy | None:
            """The strategy that was set, else 5 entries an access in background, or None."""
            if self.incremental is None and self.background:
                return StateTtlConfig.IncrementalCleanupStrategy(5)
            return self.incremental

        def in_rocksdb_compact_filter(self) -> bool:
            """True if compactions of RocksDB were asked to drop expired entries."""
            return self.compaction_filter is not None

        def get_rocksdb_compact_filter_cleanup_strategy(
            self,
        ) -> StateTtlConfig.RocksdbCompactFilterCleanupStrategy | None:
            return self.compaction_filter

    update_type: UpdateType
    state_visibility: StateVisibility
    ttl_time_characteristic: TtlTimeCharacteristic
    ttl: Time
    cleanup_strategies: CleanupStrategies

    def __post_init__(self) -> None:
        _check_positive("ttl, in milliseconds,", self.ttl.to_milliseconds())

    @staticmethod
    def new_builder(ttl: Span) -> StateTtlConfigBuilder:
        """A builder with the defaults: renewed by writes, never read when expired."""
        return StateTtlConfigBuilder(ttl)

    def get_update_type(self) -> UpdateType:
        """Accesses that renew a value."""
        return self.update_type

    def get_state_visibility(self) -> StateVisibility:
        """Visibility of expired values."""
        return self.state_visibility

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Clock of the time to live."""
        return self.ttl_time_characteristic

    def get_ttl(self) -> Time:
        """Time that a value lives after its last update."""
        return self.ttl

    def get_cleanup_strategies(self) -> CleanupStrategies:
        """Strategies for the removal of expired state."""
        return self.cleanup_strategies

    def is_enabled(self) -> bool:
        """True if state expires at all."""
        return self.update_type is not StateTtlConfig.UpdateType.Disabled


class StateTtlConfigBuilder:
    """Builds a `StateTtlConfig`; every method but `build` gives the builder itself."""

    def __init__(self, ttl: Span) -> None:
        self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
        self._visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
        self._characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
        self._full_snapshot = False
        self._background = True
        self._incremental: StateTtlConfig.IncrementalCleanupStrategy | None = None
        self._filter: StateTtlConfig.RocksdbCompactFilterCleanupStrategy | None = None
        self.set_ttl(ttl)

    def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfigBuilder:
        """Sets which accesses renew a value."""
        self._update_type = update_type
        return self

    def update_ttl_on_create_and_write(self) -> StateTtlConfigBuilder:
        """Lets only writes renew a value."""
        return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> StateTtlConfigBuilder:
        """Lets reads renew a value too."""
        return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

    def set_state_visibility(
        self, state_visibility: StateTtlConfig.StateVisibility
    ) -> StateTtlConfigBuilder:
        """Sets the visibility of expired values."""
        self._visibility = state_visibility
        return self

    def return_expired_if_not_cleaned_up(self) -> StateTtlConfigBuilder:
        """Lets an expired value be read once more if it was not removed yet."""
        return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> StateTtlConfigBuilder:
        """Makes expired values read as absent."""
        return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(
        self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
    ) -> StateTtlConfigBuilder:
        """Sets the clock of the time to live."""
        self._characteristic = ttl_time_characteristic
        return self

    def use_processing_time(self) -> StateTtlConfigBuilder:
        """Uses processing time, the only choice."""
        return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

    def set_ttl(self, ttl: Span) -> StateTtlConfigBuilder:
        """Sets how long a value lives after its last update. Raises ConfigError for other types."""
        try:
            self._ttl = Time.milliseconds(span_ms(ttl))
        except ValueError:
            raise ConfigError(
                f"The time to live is {ttl!r}, which is not a length of time",
                where=_WHERE,
                remedy="Give a Time, a Duration or a timedelta, such as Time.hours(1), '1 h', or "
                "whole milliseconds.",
            ) from None
        return self

    def cleanup_full_snapshot(self) -> StateTtlConfigBuilder:
        """Leaves expired entries out of snapshots."""
        self._full_snapshot = True
        return self

    def cleanup_incrementally(
        self, cleanup_size: int, run_cleanup_for_every_record: bool = False
    ) -> StateTtlConfigBuilder:
        """Checks this many entries on each access, other ones each time.

        Raises ConfigError for a size below 1.
        """
        self._incremental = StateTtlConfig.IncrementalCleanupStrategy(
            cleanup_size, run_cleanup_for_every_record
        )
        return self

    def cleanup_in_rocksdb_compact_filter(
        self,
        query_time_after_num_entries: int = 1_000,
        periodic_compaction_time: Span = _COMPACTION_AFTER,
    ) -> StateTtlConfigBuilder:
        """Has no effect: no backend filters in compactions. Raises ConfigError below 1."""
        age_ms = millis_of(periodic_compaction_time, where=_WHERE)
        self._filter = StateTtlConfig.RocksdbCompactFilterCleanupStrategy(
            query_time_after_num_entries, Duration.of_millis(age_ms)
        )
        return self

    def disable_cleanup_in_background(self) -> StateTtlConfigBuilder:
        """Removes expired state only when it is read, and as asked for explicitly."""
        self._background = False
        return self

    def build(self) -> StateTtlConfig:
        """The configuration. Raises ConfigError for a time to live below one millisecond."""
        strategies = StateTtlConfig.CleanupStrategies(
            self._full_snapshot, self._background, self._incremental, self._filter
        )
        return StateTtlConfig(
            self._update_type, self._visibility, self._characteristic, self._ttl, strategies
        )


StateTtlConfig.Builder = StateTtlConfigBuilder


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(
            f"{name} is {value} and has to be 1 or more", where=_WHERE, remedy="Raise it."
        )


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

    # A checker takes a descriptor without arguments for one of any values.
    Held = TypeVar("Held", default=Any)
    HeldKey = TypeVar("HeldKey", default=Any)
else:
    from typing import TypeVar

    Held, HeldKey = map(TypeVar, ("Held", "HeldKey"))


@dataclass(slots=True)
class StateDescriptor:
    """Name and type of a keyed state.

    type_info: None for any picklable value; the descriptors below also take a Python type, such as
    a dataclass, and raise GraphError for what is no type. ttl: how long it lives; None for ever.
    """

    name: str
    type_info: TypeInformation | None = None
    ttl: StateTtlConfig | None = field(default=None, kw_only=True)

    def get_name(self) -> str:
        """Name of the state, unique within its operator."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Lets the state expire; call it before the state is requested."""
        self.ttl = ttl_config


@dataclass(slots=True)
class ValueStateDescriptor(StateDescriptor, Generic[Held]):
    """One value a key: ``ValueStateDescriptor(name, value_type_info)``."""

    @overload
    def __init__(
        self,
        name: str,
        value_type_info: TypeInformation[Held] | type[Held],
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, declared(value_type_info, name), ttl=ttl)


@dataclass(slots=True)
class ListStateDescriptor(StateDescriptor, Generic[Held]):
    """A list a key: ``ListStateDescriptor(name, elem_type_info)``."""

    @overload
    def __init__(
        self,
        name: str,
        elem_type_info: TypeInformation[Held] | type[Held],
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        elem_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        elem_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, declared(elem_type_info, name), ttl=ttl)


@dataclass(slots=True)
class MapStateDescriptor(StateDescriptor, Generic[HeldKey, Held]):
    """A map a key: ``MapStateDescriptor(name, key_type_info, value_type_info)``."""

    value_type_info: TypeInformation | None = None

    @overload
    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation[HeldKey] | type[HeldKey],
        value_type_info: TypeInformation[Held] | type[Held],
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        key_type_info: TypeHint | None = None,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        key_type_info: TypeHint | None = None,
        value_type_info: TypeHint | None = None,
        *,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        StateDescriptor.__init__(self, name, declared(key_type_info, name), ttl=ttl)
        self.value_type_info = declared(value_type_info, name)


def declared(given: TypeHint | None, name: str) -> TypeInformation | None:
    """The type that a descriptor is given. Raises GraphError for what is no type."""
    return declared_type(given, where=f"the descriptor of state '{name}'")


class RedistributionMode(Enum):
    """Redistribution of an operator's list state on restore."""

    SPLIT_DISTRIBUTE = "SPLIT_DISTRIBUTE"
    UNION = "UNION"


@frozen
class OperatorStateDescriptor(Generic[Held]):
    """Name, type and redistribution of an operator's list state; types as in `StateDescriptor`."""

    name: str
    type_info: TypeInformation | None
    mode: RedistributionMode

    @overload
    def __init__(
        self,
        name: str,
        type_info: TypeInformation[Held] | type[Held],
        mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        type_info: TypeHint | None = None,
        mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        type_info: TypeHint | None = None,
        mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE,
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "type_info", declared(type_info, name))
        object.__setattr__(self, "mode", mode)
