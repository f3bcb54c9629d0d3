"""What the threads of a slot do to the process."""

import sys

import pytest

from tidegate.slot.loop.beside import SWITCH_S, short_switches


def test_a_slot_leaves_the_process_switching_as_it_did() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ValueError, match="the slot fails"), short_switches():
        assert sys.getswitchinterval() == SWITCH_S < before
        raise ValueError("the slot fails")
    assert sys.getswitchinterval() == before
