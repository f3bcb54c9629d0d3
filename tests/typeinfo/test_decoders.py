"""Decoders of one class that several threads ask for at once."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import threading, time
from dataclasses import dataclass
from tidegate.typeinfo.decoders import msgpack_decoder

other_asks = threading.Event()

def hint():
    # In the middle of what is learnt of the class: now another thread asks for it.
    other_asks.wait(60)
    time.sleep(0.2)
    return int

@dataclass
class Inner:
    number: "hint()"

@dataclass
class Count:
    key: str
    inner: Inner

def first():
    found.append(msgpack_decoder(list[Count]).decode(DATA))

def second():
    other_asks.set()
    found.append(msgpack_decoder(list[Count]).decode(DATA))

DATA = bytes.fromhex("91 82 a36b6579 a178 a5696e6e6572 81 a66e756d626572 07")
found = []
threads = [threading.Thread(target=first), threading.Thread(target=second)]
threads[0].start()
time.sleep(0.1)
threads[1].start()
for thread in threads:
    thread.join()
assert found == [[Count("x", Inner(7))]] * 2, found
"""


def test_a_class_is_looked_at_by_one_thread_at_a_time() -> None:
    """The sleeps make the meeting likely; that it goes well does not depend on them."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
