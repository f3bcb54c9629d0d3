"""Parts that ZooKeeper's client takes from outside: its links and its threads."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import SessionClosedRequireSaslError
from kazoo.handlers.threading import SequentialThreadingHandler

from tidegate.config.high_availability import ZOOKEEPER_STORES
from tidegate.model.settings import TlsStores
from tidegate.transport.keys import read_keys, service_context

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from tidegate.model.settings import ZooKeeperTls


class Links(SequentialThreadingHandler):
    """The client's way to its servers: over TCP, or over TLS where there are settings for it.

    TLS of the client itself trusts every authority that this machine trusts beside those that are
    named, and reads keys from plain files alone. Raises ConfigError for keys that cannot be read.
    """

    def __init__(self, tls: ZooKeeperTls | None) -> None:
        super().__init__()
        self._context: ssl.SSLContext | None = None
        if tls is not None:
            keys = read_keys(tls.stores or TlsStores(), prefix=ZOOKEEPER_STORES.prefix)
            self._context = service_context(keys, check_names=tls.check_names)
        self.login_refused = False

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: object
    ) -> socket.socket:
        """Connects to a server. A failed handshake raises OSError."""
        with contextlib.ExitStack() as undo:
            link = undo.enter_context(socket.create_connection(address, timeout))
            if self._context is not None:
                link = self._context.wrap_socket(link, server_hostname=hostname)
            undo.pop_all()
        return link

    def select(self, readable: list[Any], *rest: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Waits for a socket; one with decrypted bytes left is ready at once."""
        waiting = [each for each in readable if isinstance(each, ssl.SSLSocket) and each.pending()]
        return (waiting, [], []) if waiting else super().select(readable, *rest)

    def spawn(
        self, func: Callable[..., object], *args: object, **kwargs: object
    ) -> threading.Thread:
        """Starts a thread; the links' thread ends for good if a server refuses the login."""

        def run() -> None:
            try:
                func(*args, **kwargs)
            except SessionClosedRequireSaslError:
                self.login_refused = True

        return super().spawn(run)
