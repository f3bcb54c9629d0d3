"""A source of one's own: an HTTP API that gives orders page by page, read exactly-once.

The API is a server of this script, so that the example runs anywhere; a real one would be asked the
same way. Each region is a split of its own, so that two readers can share the work.
"""

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tidegate import StreamExecutionEnvironment, WatermarkStrategy
from tidegate.connectors import Page, PollingSource

ORDERS, A_PAGE = 120, 25


class Orders(PollingSource):
    """Orders of each region, from the first one on."""

    bounded = True

    def __init__(self, url):
        self.url = url

    def splits(self):
        return ["north", "south"]

    def start(self, split):
        return 0

    def poll(self, split, position):
        with urllib.request.urlopen(f"{self.url}/{split}?from={position}", timeout=30) as answer:
            found = json.load(answer)
        return Page(found["orders"], found["next"], end=found["next"] >= ORDERS)


class Api(BaseHTTPRequestHandler):
    """Gives some orders of a region, and where the next ones begin."""

    def do_GET(self):
        place = urlsplit(self.path)
        first = int(parse_qs(place.query)["from"][0])
        last = min(first + A_PAGE, ORDERS)
        orders = [{"region": place.path[1:], "price": n} for n in range(first, last)]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"orders": orders, "next": last}).encode())

    def log_message(self, *args):
        """Say nothing."""


def totals(orders):
    """The number and the sum of prices of each region, after each order."""
    priced = orders.map(lambda order: (order["region"], 1, order["price"]))
    return priced.key_by(lambda row: row[0]).reduce(
        lambda one, two: (one[0], one[1] + two[1], one[2] + two[2])
    )


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    source = Orders(f"http://127.0.0.1:{server.server_port}")
    orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").uid("orders")
    last = {}
    with totals(orders).uid("totals").execute_and_collect("paged api") as results:
        for region, count, total in results:
            last[region] = (count, total)
    server.shutdown()
    for region, (count, total) in sorted(last.items()):
        print(f"{region}: {count} orders, {total} in all")


if __name__ == "__main__":
    main()
