"""Inputs are the same for a number, differ from their seeds, and stay within bounds."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzzing.cases import Opened, Reader, input_of
from tests.fuzzing.mutations import BYTES_MAX, mutated

SEEDS = [bytes(range(200)), b"", b"\xff" * 3]


@pytest.mark.parametrize("text", [False, True])
def test_a_number_stands_for_the_same_input_for_good(text: bool) -> None:
    reader = Reader("of a test", lambda: Opened(SEEDS, lambda _, data: data), (), text=text)
    opened = reader.open()
    inputs = [input_of(reader, opened, number) for number in range(300)]
    assert inputs == [input_of(reader, opened, number) for number in range(300)]
    assert len(set(inputs)) > 200
    other = Reader("another", reader.open, (), text=text)
    assert inputs != [input_of(other, opened, number) for number in range(300)]


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("index", range(len(SEEDS)))
def test_inputs_are_near_their_seed_and_bounded(index: int, text: bool) -> None:
    inputs = [mutated(SEEDS, index, Random(number), text=text) for number in range(500)]
    assert max(map(len, inputs)) <= BYTES_MAX
    changed = [data for data in inputs if data != SEEDS[index]]
    assert len(changed) > len(inputs) // 3


def test_texts_are_nested_deeply_and_numbers_reach_their_limits() -> None:
    texts = [mutated([b'{"a": 1}'], 0, Random(number), text=True) for number in range(2_000)]
    assert any(data.count(b"[") >= 20_000 for data in texts)
    found = [mutated([bytes(16)], 0, Random(number)) for number in range(2_000)]
    assert any(b"\xff" * 8 in data for data in found)
    assert any(len(data) < 16 for data in found) and any(len(data) > 16 for data in found)
