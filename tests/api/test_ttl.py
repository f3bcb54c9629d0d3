"""The time to live of state, as it is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidegate import ConfigError, Duration, StateTtlConfig, Time

if TYPE_CHECKING:
    from collections.abc import Callable

Update = StateTtlConfig.UpdateType
Visibility = StateTtlConfig.StateVisibility


def test_a_configuration_tells_what_it_was_built_of() -> None:
    default = StateTtlConfig.new_builder(Time.seconds(1)).build()
    assert default.get_ttl() == Time.seconds(1) and default.is_enabled()
    assert default.get_update_type() is Update.OnCreateAndWrite
    assert default.get_state_visibility() is Visibility.NeverReturnExpired
    processing_time = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    assert default.get_ttl_time_characteristic() is processing_time
    strategies = default.get_cleanup_strategies()
    assert strategies.is_cleanup_in_background() and not strategies.in_full_snapshot()
    assert not strategies.in_rocksdb_compact_filter()
    assert strategies.get_rocksdb_compact_filter_cleanup_strategy() is None
    incremental = strategies.get_incremental_cleanup_strategy()
    assert incremental is not None and incremental.get_cleanup_size() == 5
    assert not incremental.run_cleanup_for_every_record()

    builder = StateTtlConfig.new_builder(Time.seconds(1)).set_ttl(Duration.of_seconds(2))
    builder.update_ttl_on_read_and_write().return_expired_if_not_cleaned_up()
    builder.use_processing_time().cleanup_full_snapshot().disable_cleanup_in_background()
    config = builder.cleanup_in_rocksdb_compact_filter(10, Duration.of_days(1)).build()
    assert config.get_ttl() == Time.seconds(2)
    assert config.get_update_type() is Update.OnReadAndWrite
    assert config.get_state_visibility() is Visibility.ReturnExpiredIfNotCleanedUp
    strategies = config.get_cleanup_strategies()
    assert strategies.in_full_snapshot() and not strategies.is_cleanup_in_background()
    assert strategies.get_incremental_cleanup_strategy() is None
    assert strategies.in_rocksdb_compact_filter()
    compaction = strategies.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction is not None and compaction.get_query_time_after_num_entries() == 10
    assert compaction.get_periodic_compaction_time() == Duration.of_days(1)
    again = builder.update_ttl_on_create_and_write().never_return_expired()
    config = again.cleanup_incrementally(9, True).build()
    incremental = config.get_cleanup_strategies().get_incremental_cleanup_strategy()
    assert incremental is not None and incremental.get_cleanup_size() == 9
    assert incremental.run_cleanup_for_every_record()
    assert config.get_update_type() is Update.OnCreateAndWrite
    assert not builder.set_update_type(Update.Disabled).build().is_enabled()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: StateTtlConfig.new_builder(Time.seconds(0)).build(), "ttl, in milliseconds, is 0"),
        (lambda: StateTtlConfig.new_builder(Duration.of_nanos(5)).build(), "is 0 and has to be 1"),
        (lambda: StateTtlConfig.new_builder(1.5), "1.5, which is not a length of time"),
        (
            lambda: StateTtlConfig.new_builder(Time.seconds(1)).cleanup_incrementally(0),
            "cleanup_size is 0",
        ),
        (
            lambda: StateTtlConfig.new_builder(Time.seconds(1)).cleanup_in_rocksdb_compact_filter(
                -1
            ),
            "num_entries is -1",
        ),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        make()
    assert raised.value.where == "StateTtlConfig"
