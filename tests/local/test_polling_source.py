"""A source of one's own over an HTTP API, with a killed slot."""

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from examples import paged_api
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.watch import kill_slot, wait_completed
from tidegate import WatermarkStrategy
from tidegate.connectors import Page

pytestmark = pytest.mark.slow


class Held(ThreadingHTTPServer):
    """Answers for later pages once `released` is set, so that there is somebody to kill."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HeldApi)
        self.released = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class HeldApi(paged_api.Api):
    """The API of such a server."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Held)
        if int(self.path.rpartition("=")[2]) >= paged_api.ORDERS // 2:
            self.server.released.wait(20)
        super().do_GET()


class Numbered(paged_api.Orders):
    """Orders with the number that tells them apart; pages are asked for as they come."""

    def poll(self, split: str, position: int) -> Page[int]:
        page = super().poll(split, position)
        rows = [f"{order['region']} {order['price']}" for order in page.rows]
        return Page(rows, page.position, page.end)


@pytest.fixture
def api() -> Iterator[Held]:
    server = Held()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_pages_of_an_api_are_read_once_though_a_slot_is_killed(
    jobs: Jobs, api: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paged_api, "A_PAGE", 5)
    env = jobs.checkpointed(2, 100)
    orders = env.from_source(Numbered(api.url), WatermarkStrategy.no_watermarks(), "orders")
    orders.uid("orders").sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "orders")
    wait_completed(client, 2)
    kill_slot(client, 0)
    api.released.set()
    finished(client)
    rows = ledger_rows(jobs.folder / "out")
    assert sorted(rows) == sorted(f"{r} {n}" for r in ("north", "south") for n in range(120))
