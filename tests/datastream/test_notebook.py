"""What is displayed again and again in a notebook, and where there is none."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.rest.shown import OVER, VIEW
from tidegate.datastream.process import notebook
from tidegate.datastream.process.notebook import Shown, in_notebook, show_live
from tidegate.datastream.results import SHOWN_ROWS, CloseableIterator
from tidegate.driver.client.drawing import drawn, not_known
from tidegate.errors import PeerLost

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 60.0


class Cell:
    """The cell of a notebook: what it shows now, and what it has shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.display_module = SimpleNamespace(HTML=str, display=self.display)

    def display(self, html: str, *, display_id: bool) -> Cell:
        assert display_id
        self.shown.append(html)
        return self

    def update(self, html: str) -> None:
        self.shown.append(html)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A process that a notebook talks to."""
    made = Cell()
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", made.display_module)
    monkeypatch.setattr(notebook, "EVERY_S", 0.01)
    return made


def wait_for_drawers() -> None:
    for thread in threading.enumerate():
        if thread.name == "tidegate-notebook":
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def test_a_cell_is_brought_up_to_date_until_nothing_more_will_come(cell: Cell) -> None:
    states = iter([Shown("a", False), Shown("b", False), Shown("c", True)])
    show_live(lambda: next(states), "text")
    wait_for_drawers()
    assert cell.shown == ["a", "b", "c"]


def test_what_is_final_at_once_needs_no_thread(cell: Cell) -> None:
    show_live(lambda: Shown("a", True), "text")
    wait_for_drawers()
    assert cell.shown == ["a"]


def test_at_a_prompt_the_text_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert not in_notebook()
    show_live(lambda: Shown("a", False), "text")
    assert capsys.readouterr().out == "text\n"


class Client:
    """A job whose records come as the test says."""

    def __init__(self, *rows: object) -> None:
        self.rows = list(rows)
        self.result: Future[object] = Future()
        self.lost = False

    def collected(self, name: str) -> Iterator[object]:
        return iter(self.rows)

    def collected_waiting(self, name: str, count: int) -> list[object]:
        if self.lost:
            raise PeerLost("the driver does not answer")
        return self.rows[:count]

    def get_job_execution_result(self) -> Future[object]:
        return self.result

    def cancel(self) -> Future[object]:
        self.result.set_result(None)
        return self.result


def shown_by(client: Any) -> CloseableIterator[object]:
    records: CloseableIterator[object] = CloseableIterator(client, "rows")
    records._ipython_display_()
    return records


def test_first_records_are_shown_once_there_are_enough(cell: Cell) -> None:
    client = Client(*({"n": number} for number in range(SHOWN_ROWS + 5)))
    records = shown_by(client)
    wait_for_drawers()
    assert len(cell.shown) == 1 and cell.shown[0].count("<tr>") == SHOWN_ROWS + 1
    assert records.next() == {"n": 0}, "they stay to be taken"
    records.close()


def test_few_records_are_shown_until_the_job_has_ended(cell: Cell) -> None:
    client = Client()
    records = shown_by(client)
    assert "No record has come yet" in cell.shown[0]
    client.rows.append((1, "a"))
    records.close()
    wait_for_drawers()
    assert "<td" in cell.shown[-1] and ">f1<" in cell.shown[-1]


def test_a_driver_that_does_not_answer_is_told_in_the_cell(cell: Cell) -> None:
    client = Client(1)
    client.lost = True
    records = shown_by(client)
    assert "the driver does not answer" in cell.shown[0]
    client.lost = False
    records.close()
    wait_for_drawers()
    assert "record" in cell.shown[-1]


def test_who_has_begun_to_read_ends_the_display(cell: Cell) -> None:
    client = Client(1, 2)
    records = shown_by(client)
    assert records.next() == 1
    wait_for_drawers()
    records.close()


def test_a_job_is_drawn_with_its_figures_findings_and_page() -> None:
    shown = drawn(VIEW, "http://here:1")
    assert not shown.final and "<svg" in shown.html and 'href="http://here:1"' in shown.html
    assert f"<b>{VIEW.name}</b> RUNNING for" in shown.html
    assert "<b>checkpoint " in shown.html and "<b>last failure</b>" in shown.html
    assert " backpressured</text>" in shown.html
    over = drawn(OVER, None)
    assert over.final and "href" not in over.html


def test_a_job_that_cannot_be_asked_says_so() -> None:
    shown = not_known(PeerLost("it is busy"), final=False)
    assert "it is busy" in shown.html and not shown.final
