from __future__ import annotations

import copy
import pickle

import pytest

from tidegate.config import checkpointing
from tidegate.config.configuration import Configuration
from tidegate.errors import ConfigError


def test_an_option_that_is_not_set_has_its_default() -> None:
    configuration = Configuration()
    assert configuration.get(checkpointing.CHECKPOINT_TIMEOUT) == 600_000
    assert configuration.get(checkpointing.CHECKPOINT_INTERVAL) is None
    assert not configuration.contains(checkpointing.CHECKPOINT_TIMEOUT)


def test_an_option_is_set_by_itself_or_by_key_and_read_typed() -> None:
    configuration = Configuration().set(checkpointing.CHECKPOINT_INTERVAL, 1_500)
    assert configuration.get(checkpointing.CHECKPOINT_INTERVAL) == 1_500
    assert configuration.get_string("execution.checkpointing.interval", "") == "1500 ms"
    configuration.set("execution.checkpointing.interval", "2 s")
    assert configuration.get(checkpointing.CHECKPOINT_INTERVAL) == 2_000
    configuration.unset(checkpointing.CHECKPOINT_INTERVAL)
    assert configuration.get(checkpointing.CHECKPOINT_INTERVAL) is None


def test_an_old_key_means_todays_option() -> None:
    configuration = Configuration().set_string("state.checkpoints.dir", "/tmp/c")
    assert configuration.get(checkpointing.CHECKPOINT_DIRECTORY) == "/tmp/c"
    assert configuration.contains_key("state.checkpoints.dir")
    assert configuration.key_set() == {"execution.checkpointing.dir"}
    assert configuration.remove_config("state.backend.fs.checkpointdir")
    assert not configuration.remove_config("state.backend.fs.checkpointdir")


def test_a_value_that_does_not_fit_is_refused_at_once_and_changes_nothing() -> None:
    configuration = Configuration().set(checkpointing.CHECKPOINT_TIMEOUT, "1 min")
    with pytest.raises(ConfigError) as caught:
        configuration.set("execution.checkpointing.timeout", "soon", where="line 4")
    assert caught.value.what == "execution.checkpointing.timeout is 'soon', which is not a duration"
    assert caught.value.where == "line 4"
    assert "'10 s'" in caught.value.remedy
    assert configuration.get(checkpointing.CHECKPOINT_TIMEOUT) == 60_000


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("execution.checkpointing.intervall", "execution.checkpointing.interval"),
        ("tidegate.batch.row", "tidegate.batch.rows"),
        ("restart-strategy.typ", "restart-strategy.type"),
    ],
)
def test_a_slip_of_the_pen_is_refused_with_the_key_that_was_meant(key: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Configuration().set(key, "1")
    assert caught.value.remedy == f"Did you mean '{meant}'?"


def test_a_key_of_ours_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"There is no option 'tidegate\.zzz'"):
        Configuration().set("tidegate.zzz", "1")


def test_the_programs_own_keys_and_flinks_others_are_kept() -> None:
    configuration = Configuration()
    configuration.set("my.threshold", 3).set("state.backend.rocksdb.log.dir", "/tmp")
    assert configuration.get_integer("my.threshold", 0) == 3
    assert configuration.ignored_keys() == ["state.backend.rocksdb.log.dir"]


def test_what_stands_in_a_clusters_configuration_file_is_known_for_flinks() -> None:
    cluster = {
        "jobmanager.memory.process.size": "1600m",
        "parallelism.default": "2",
        "taskmanager.memory.process.size": "1728m",
        "taskmanager.numberOfTaskSlots": "4",
    }
    ignored = Configuration.from_dict(cluster).ignored_keys()
    assert ignored == sorted(cluster.keys() - {"parallelism.default"})


def test_typed_getters_read_what_typed_setters_wrote() -> None:
    configuration = Configuration()
    configuration.set_integer("i", 3).set_boolean("b", True).set_float("f", 1.2)
    configuration.set_string("s", "x")
    assert configuration.to_dict() == {"i": "3", "b": "true", "f": "1.2", "s": "x"}
    assert configuration.get_integer("i", 0) == 3
    assert configuration.get_boolean("b", False) is True
    assert configuration.get_float("f", 0.0) == 1.2
    assert configuration.get_string("s", "") == "x"
    assert configuration.get_integer("none", 7) == 7
    with pytest.raises(ConfigError, match="s is 'x', which is not a whole number"):
        configuration.get_integer("s", 0)


def test_all_settings_of_another_are_taken_over_with_a_prefix() -> None:
    first = Configuration().set("a", "1").set("b", "2")
    second = Configuration.from_dict({"b": "3"})
    assert first.add_all(second).to_dict() == {"a": "1", "b": "3"}
    assert Configuration().add_all(second, "p.").to_dict() == {"p.b": "3"}
    target = {"z": "0"}
    second.add_all_to_dict(target)
    assert target == {"z": "0", "b": "3"}


def test_a_frozen_configuration_cannot_be_changed_and_its_copy_can() -> None:
    frozen = Configuration().set("a", "1").freeze()
    for change in (lambda: frozen.set("a", "2"), lambda: frozen.remove_config("a")):
        with pytest.raises(ConfigError, match="cannot be changed"):
            change()
    assert frozen.copy().set("a", "2").get_string("a", "") == "2"
    assert frozen.get_string("a", "") == "1"


def test_configurations_are_equal_by_content_and_travel() -> None:
    one, other = Configuration().set("a", "1"), Configuration().set("a", "1")
    assert one == other
    assert hash(one) == hash(other)
    assert one != Configuration()
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert str(Configuration().set("k1", "v1").set("k2", 1)) == "{k1=v1, k2=1}"


def test_a_list_value_is_parsed_as_in_pyflink() -> None:
    assert Configuration.parse_list_value("[a, b]") == ["a", "b"]
    assert Configuration.parse_list_value("a;b") == ["a", "b"]
    assert Configuration.parse_list_value(None) == []
