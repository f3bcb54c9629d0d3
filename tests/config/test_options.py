from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tidegate.config import configuration as options
from tidegate.config.flink_keys import FLINK_ONLY
from tidegate.config.option import ConfigOption
from tidegate.config.security import StoreOptions


@pytest.mark.parametrize("option", options.ALL, ids=lambda option: option.key)
def test_every_option_has_a_sentence_and_a_default_that_it_would_take(
    option: ConfigOption[object],
) -> None:
    assert option.description.endswith(".")
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)+", option.key)
    if option.default is None:
        assert option.default_text == "(none)"
    else:
        assert option.parse(option.default_text) == option.default


def test_keys_are_unique_and_no_old_key_is_a_key_of_today() -> None:
    keys = [option.key for option in options.ALL]
    old = [key for option in options.ALL for key in option.old_keys]
    assert len(set(keys)) == len(keys)
    assert len(set(old)) == len(old)
    assert not set(keys) & set(old)


FLINK_KEYS = frozenset(Path(__file__).with_name("flink_keys.txt").read_text().split())
"""Keys of Flink 2.3, and of older versions if people still have them in their configurations."""

BESIDE_FLINKS = {"pipeline.dead-letters", "pipeline.trace-functions", "rest.web.jar"}
"""Keys of ours that stand among Flink's, where a user looks for them."""


def test_every_key_is_flinks_or_says_that_it_is_ours() -> None:
    for option in options.ALL:
        ours = option.key.startswith("tidegate.") or option.key in BESIDE_FLINKS
        assert ours is (option.key not in FLINK_KEYS)


def test_keys_that_only_flink_reads_are_those_that_are_no_option() -> None:
    assert {option.key for option in options.ALL}.isdisjoint(FLINK_ONLY)
    assert FLINK_ONLY <= FLINK_KEYS <= FLINK_ONLY | {option.key for option in options.ALL}


def test_the_defaults_that_differ_from_flinks_say_why() -> None:
    differing = {option.key for option in options.ALL if option.differs}
    assert differing == {
        "execution.checkpointing.during-recovery.enabled",
        "execution.checkpointing.externalized-checkpoint-retention",
        "execution.checkpointing.incremental",
        "execution.checkpointing.num-retained",
        "heartbeat.interval",
        "heartbeat.timeout",
        "high-availability.zookeeper.client.session-timeout",
        "high-availability.zookeeper.path.root",
        "historyserver.archive.fs.refresh-interval",
        "jobmanager.archive.fs.dir",
        "rest.bind-address",
        "rest.bind-port",
        "rest.flamegraph.enabled",
        "rest.port",
        "state.backend.rocksdb.memory.fixed-per-slot",
        "state.backend.rocksdb.use-bloom-filter",
        "state.changelog.storage",
        "task.cancellation.interval",
        "task.cancellation.timeout",
    }


def test_all_are_the_options_of_the_topics() -> None:
    defined = {
        option
        for path in Path(options.__file__).parent.glob("*.py")
        for thing in vars(import_module(f"tidegate.config.{path.stem}")).values()
        for option in (thing.all() if isinstance(thing, StoreOptions) else (thing,))
        if isinstance(option, ConfigOption)
    }
    assert defined == set(options.ALL)
