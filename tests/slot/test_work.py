"""The time of one operator, without that of what takes its results."""

from tidegate.model.metrics import Spread
from tidegate.slot.subtask.work import Work


class Chained:
    """A clock, and the time that passes below an operator."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.below_s = 0.0
        self.work = Work(0.005, self, lambda: self.now_s)

    def passes(self, own_s: float, *, below_s: float = 0.0) -> None:
        self.now_s += own_s + below_s
        self.below_s += below_s

    @property
    def per_row(self) -> Spread:
        found = self.work.per_row.value()
        assert isinstance(found, Spread)
        return found


def test_a_batch_costs_its_own_time_and_not_that_of_its_results() -> None:
    chained = Chained()
    chained.work.begin(1_000)
    chained.passes(0.25, below_s=8.0)
    chained.work.end()
    assert chained.work.busy_s == 0.25
    assert (chained.per_row.count, chained.per_row.mean) == (1, 250.0)


def test_time_between_steps_is_not_of_the_operator() -> None:
    chained = Chained()
    chained.work.begin(10)
    chained.passes(0.5)
    chained.work.rest()
    chained.passes(60.0)
    chained.work.resume()
    chained.passes(0.5, below_s=2.0)
    chained.work.end()
    assert chained.work.busy_s == 1.0 and chained.per_row.mean == 100_000.0


def test_a_watermark_and_a_poll_keep_an_operator_busy_and_are_no_rows() -> None:
    chained = Chained()
    rows = chained.work.piece.rows
    chained.work.begin()
    chained.passes(0.5)
    chained.work.end()
    chained.work.worked(0.25)
    assert chained.work.busy_s == 0.75 and chained.per_row.count == 0
    assert chained.work.piece.rows == rows
