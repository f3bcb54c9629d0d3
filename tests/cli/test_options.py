"""`tidegate options`: what can be set, found by words."""

import json

from click.testing import CliRunner, Result

from tidegate.cli.main import commands
from tidegate.config.configuration import ALL


def options(*words: str) -> Result:
    return CliRunner().invoke(commands, ["options", *words])


def keys(*words: str) -> list[str]:
    found = options("--json", *words)
    assert found.exit_code == 0, found.output
    return [entry["key"] for entry in json.loads(found.stdout)]


def test_without_a_word_all_are_listed_in_the_order_of_the_reference() -> None:
    assert keys() == [option.key for option in ALL]


def test_words_are_looked_for_in_keys_and_descriptions_whatever_their_case() -> None:
    assert keys("Watermark", "periodic") == ["pipeline.auto-watermark-interval"]
    assert "execution.checkpointing.dir" in keys("state.checkpoints.dir"), "an older spelling"


def test_an_option_is_told_with_its_type_default_and_meaning() -> None:
    said = options("heartbeat.interval").stdout
    assert said.startswith("heartbeat.interval  (duration, default 1 s)\n")
    assert "heartbeats" in said
    assert "Write a duration" in said
    assert "not Flink's" in said and "Flink beats every 10 s" in " ".join(said.split())


def test_an_option_without_a_default_says_so() -> None:
    assert "(text, no default)" in options("execution.checkpointing.dir").stdout


def test_a_word_that_is_nowhere_is_answered_with_the_nearest() -> None:
    result = options("heartbaet")
    assert result.exit_code == 2
    assert "Did you mean 'heartbeat.timeout'?" in result.stderr


def test_a_key_that_flink_alone_reads_is_told_as_that() -> None:
    result = options("taskmanager.numberOfTaskSlots")
    assert result.exit_code == 2
    assert "Flink reads 'taskmanager.numberOfTaskSlots', and Tidegate does not" in result.stderr
