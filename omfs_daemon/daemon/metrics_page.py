"""The metrics over HTTP. Anybody who reaches the port may connect, so connections are few and short."""

from __future__ import annotations

import time
from collections.abc import Iterable
from socket import AI_PASSIVE, SHUT_RDWR, SOCK_STREAM, getaddrinfo, socket
from socketserver import TCPServer, ThreadingMixIn
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from omfs_daemon.errors import ConfigError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

MOST_CONNECTIONS = 16
"""Connections at a time; one more ends the oldest. Prometheus needs one, for a few milliseconds."""

CONNECTION_SECONDS = 10.0
"""How long a connection may last, whatever it sends; Prometheus's own limit on a scrape is 10 seconds, too."""

_LOOK_EVERY = 0.25


class MetricsPage:
    """The page while it is served. Close it once. ConfigError if the address cannot be had."""

    def __init__(
        self, registry: CollectorRegistry, address: str, port: int, seconds: float = CONNECTION_SECONDS
    ) -> None:
        try:
            self._server = _Server(address, port, seconds)
        except (OSError, UnicodeError) as error:  # a name that cannot be one in DNS is a UnicodeError
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"metrics.address, metrics.port = {address}:{port}: {reason}") from error
        self._server.set_app(_plain(make_wsgi_app(registry)))
        self._thread = Thread(target=self._server.serve_forever, args=(_LOOK_EVERY,), name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def connections(self) -> int:
        """How many are open now."""
        return self._server.connections

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=2.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _plain(page: WSGIApplication) -> WSGIApplication:
    """Always in Prometheus's text format: prometheus_client fails, with a traceback in the log, where a client accepts
    a version that is no number."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        environ.pop("HTTP_ACCEPT", None)
        return page(environ, start_response)

    return answer


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing: who connects is not worth a line in the daemon's log."""

    def address_string(self) -> str:
        """Without asking DNS."""
        return str(self.client_address[0])


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection; it ends with the connection."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, host: str, port: int, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[socket, float] = {}
        self._lock = Lock()
        self.address_family, _, _, _, address = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)[0]
        super().__init__((str(address[0]), int(address[1])), _Handler)

    def server_bind(self) -> None:
        """Without asking DNS for the host's name, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._open)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            surplus = list(self._open)[: len(self._open) + 1 - MOST_CONNECTIONS]
            self._open[request] = time.monotonic()
        self._end(surplus)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called by the serving thread several times a second."""
        with self._lock:
            latest = time.monotonic() - self._seconds
            overdue = [connection for connection, since in self._open.items() if since < latest]
        self._end(overdue)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no event of the daemon."""

    def _end(self, connections: list[socket]) -> None:
        """Their threads wake up, and close them."""
        for connection in connections:
            with self._lock:
                self._open.pop(connection, None)
            try:
                connection.shutdown(SHUT_RDWR)
            except OSError:
                continue  # it has ended by itself
