"""What a notebook shows, run by a real kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PROGRAM = """
import threading
import time
from tidegate import StreamExecutionEnvironment, Types

env = StreamExecutionEnvironment.local(2)
env.enable_checkpointing(200)
numbers = env.generate(lambda n: n, rate=100.0).uid("numbers").name("numbers")
tens = numbers.map(lambda n: (n, n * 10), Types.TUPLE([Types.LONG(), Types.LONG()])).name("tens")
tens.key_by(lambda pair: pair[0] % 4).reduce(lambda a, b: b).name("last <of> all")


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it has taken too long"
        time.sleep(0.1)


def nothing_is_drawn():
    return all(each.name != "tidegate-notebook" for each in threading.enumerate())


def checkpoint_taken():
    return client.view().checkpoints.counts.completed > 0
"""


def run(folder: Path, *cells: str) -> list[list[dict[str, Any]]]:
    """Outputs of these cells, as they are once all have run; of the data alone."""
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in (PROGRAM, *cells)]
    )
    NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return [
        [output["data"] for output in cell["outputs"] if "data" in output]
        for cell in book["cells"][1:]
    ]


def test_a_program_and_its_streams_are_drawn(tmp_path: Path) -> None:
    [env], [stream], none = run(tmp_path, "env", "tens", "StreamExecutionEnvironment.local(1)")
    assert "<svg" in env["text/html"] and "HASH" in env["text/html"]
    assert "last &lt;of&gt; all" in env["text/html"] and "2 subtasks" in env["text/html"]
    assert "last" not in stream["text/html"] and 'stroke-width="2"' in stream["text/html"]
    assert stream["text/plain"].startswith("<DataStream 'tens' of")
    assert "text/html" not in none[0] and "no steps yet" in none[0]["text/plain"]


def test_a_job_is_shown_with_live_figures_until_it_has_ended(tmp_path: Path) -> None:
    _, begun, _, ended = run(
        tmp_path,
        "sink = numbers.print()\nclient = env.execute_async('live')",
        "client",
        "until(checkpoint_taken)\nclient.cancel().result(60)\nuntil(nothing_is_drawn)",
        "client",
    )
    [shown] = begun
    [last] = ended
    assert "<svg" in last["text/html"] and "<b>live</b> CANCELED" in last["text/html"]
    # The first cell's output was brought up to date, by a thread, after the cell had run.
    assert "<b>live</b> CANCELED" in shown["text/html"], shown["text/html"][:300]
    assert "checkpoint" in shown["text/html"] and "rows" in shown["text/html"]


def test_results_appear_as_they_come_and_stay_to_be_taken(tmp_path: Path) -> None:
    cells = (
        "rows = tens.execute_and_collect('rows')\nrows",
        "until(nothing_is_drawn)\nrows.take(1)",
        "rows.close()",
    )
    [shown], [first], _ = run(tmp_path, *cells)
    html = shown["text/html"]
    assert "<th" in html and ">f0</th>" in html and html.count("<tr>") == 21
    number, ten = eval(first["text/plain"])[0]
    row = f'<td style="text-align:left">{number}</td><td style="text-align:left">{ten}</td>'
    assert html.index(row) < html.index("</tr>", html.index("<tbody>"))


def test_a_snapshot_is_shown_with_its_states(tmp_path: Path) -> None:
    cells = (
        "from tidegate import Snapshot\n"
        "numbers.print()\nclient = env.execute_async('kept')\nuntil(checkpoint_taken)\n"
        f"path = client.trigger_savepoint('{tmp_path}').result(60)\n"
        "client.cancel().result(60)",
        "Snapshot.open(path)",
    )
    _, [shown] = run(tmp_path, *cells)
    assert "last &lt;of&gt; all" in shown["text/html"] and "reducing" in shown["text/html"]
