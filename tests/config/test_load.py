from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidegate.config import checkpointing, execution, state_backend
from tidegate.config.load import load_configuration, read_dynamic, read_file
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "tidegate.yaml"
    file.write_text(text)
    return file


def test_flat_and_nested_keys_mean_the_same(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
execution.checkpointing.interval: 1 s
execution:
  checkpointing:
    dir: /tmp/c
    unaligned:
      enabled: true
  buffer-timeout.interval: 20 ms
parallelism.default: 4
pipeline:
  name: null
  global-job-parameters: {a: 1, b: x}
my.list: [a, b]
""",
    )
    configuration = read_file(file)
    assert configuration.get(checkpointing.CHECKPOINT_INTERVAL) == 1_000
    assert configuration.get(checkpointing.CHECKPOINT_DIRECTORY) == "/tmp/c"
    assert configuration.get(checkpointing.UNALIGNED_CHECKPOINTS)
    assert configuration.get(execution.BUFFER_TIMEOUT) == 20
    assert configuration.get(execution.PARALLELISM) == 4
    assert configuration.get(execution.JOB_NAME) is None
    assert configuration.get(execution.GLOBAL_JOB_PARAMETERS) == {"a": "1", "b": "x"}
    assert configuration.get_string("my.list", "") == "a;b"


def test_an_empty_file_has_no_settings(tmp_path: Path) -> None:
    assert read_file(written(tmp_path, "# nothing\n")).to_dict() == {}


def test_the_command_line_wins_over_the_file_even_by_an_old_key(tmp_path: Path) -> None:
    file = written(tmp_path, "execution.checkpointing.dir: /file\nstate.backend.type: hashmap\n")
    configuration = load_configuration(file, ["state.checkpoints.dir=/line"])
    assert configuration.get(checkpointing.CHECKPOINT_DIRECTORY) == "/line"
    assert configuration.where_set(checkpointing.CHECKPOINT_DIRECTORY) == (
        "command line, -D state.checkpoints.dir"
    )
    assert configuration.where_set(state_backend.STATE_BACKEND) == f"{file}, line 2"


def test_all_faults_of_a_file_are_told_with_their_lines(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "parallelism.default: many\nstate:\n  backend:\n    type: rocks\n"
        "execution.checkpointing.intervall: 1 s\nparallelism.default: 3\n",
    )
    with pytest.raises(ConfigError) as caught:
        read_file(file)
    for what in ("'many'", "'rocks'", "intervall", "second time"):
        assert what in caught.value.what
    for line in (1, 4, 5, 6):
        assert f"{file}, line {line}" in caught.value.where


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("a: [b", "not valid YAML", 1),
        ("- a\n- b\n", "holds no options", 1),
        ("k: v\n\tx: 1", "not valid YAML", 2),
        ("k: v\npipeline.global-job-parameters: {a: {b: c}}", "where a single value belongs", 2),
        ("pipeline.jars:\n- [a, b]", "where a single value belongs", 2),
        ("k: v\n? [a, b]\n: v", "where a single value belongs", 2),
    ],
)
def test_what_is_no_file_of_options_is_refused(
    tmp_path: Path, text: str, what: str, line: int
) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        read_file(written(tmp_path, text))
    assert caught.value.where.endswith(f"line {line}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "k0: &a0 x\n" + "".join(f"k{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(60)),
        "a: &a {b: *a}\n",
        "a: " + "[" * 20_000,
        "".join(f"{' ' * n}a:\n" for n in range(150)),
    ],
    ids=["aliases of aliases", "an alias of itself", "brackets", "levels"],
)
def test_a_file_that_grows_without_end_is_refused_at_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="more than 10000 values or 100 levels"):
        read_file(written(tmp_path, text))


def test_a_file_with_what_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        read_file(written(tmp_path, "a: \0\n"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        load_configuration(tmp_path / "none.yaml")
    assert caught.value.where == str(tmp_path / "none.yaml")


def test_the_later_of_two_arguments_wins() -> None:
    configuration = read_dynamic(["parallelism.default=2", "parallelism.default = 3"])
    assert configuration.get(execution.PARALLELISM) == 3


def test_faulty_arguments_are_told_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read_dynamic(["parallelism.default=x", "nothing"])
    assert "'x'" in caught.value.what
    assert "'nothing' sets nothing" in caught.value.what
    assert "command line, -D nothing" in caught.value.where
