"""The driver's pool: as many threads as are needed, none that the process must wait for."""

import threading
from concurrent.futures import wait

import pytest

from tidegate.clock import SystemClock
from tidegate.driver.pool import DriverPool


def test_calls_run_beside_each_other_and_give_what_they_give() -> None:
    pool = DriverPool(4, SystemClock())
    meeting = threading.Barrier(3, timeout=60)
    met = [pool.submit(meeting.wait) for _ in range(3)]
    assert sorted(future.result(timeout=60) for future in met) == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(timeout=60)
    assert pool.close(5) == 0


def test_there_are_never_more_threads_than_allowed_and_idle_ones_are_used_again() -> None:
    pool = DriverPool(2, SystemClock())
    names = {pool.submit(lambda: threading.current_thread().name).result(5) for _ in range(20)}
    many = [pool.submit(lambda: threading.current_thread().name) for _ in range(50)]
    wait(many, timeout=60)
    assert len(names | {future.result() for future in many}) <= 2
    assert pool.close(5) == 0


def test_a_call_that_was_cancelled_in_the_queue_is_not_made() -> None:
    pool, go, made = DriverPool(1, SystemClock()), threading.Event(), []
    first = pool.submit(lambda: go.wait(5))
    second = pool.submit(lambda: made.append(2))
    assert second.cancel()
    go.set()
    assert first.result(timeout=60) is True and pool.close(5) == 0 and made == []


def test_the_end_counts_the_calls_that_do_not_end_and_leaves_them() -> None:
    pool, go = DriverPool(3, SystemClock()), threading.Event()
    stuck = pool.submit(lambda: go.wait(10))
    pool.submit(lambda: None).result(timeout=60)
    assert pool.close(0.05) == 1
    assert all(t.daemon for t in threading.enumerate() if t.name.startswith("tidegate-driver-io"))
    go.set()
    assert stuck.result(timeout=60) is True
