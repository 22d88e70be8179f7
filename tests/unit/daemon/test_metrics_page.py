"""The metrics over HTTP: anybody may connect, and nobody keeps Prometheus or the daemon from their work."""

from __future__ import annotations

import resource
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.metrics_page import CONNECTION_SECONDS, MOST_CONNECTIONS, MetricsPage
from omfs_daemon.errors import ConfigError
from tests.support.waiting import LIMIT, wait_until

MANY = 1000


@pytest.fixture
def many_files() -> Iterator[None]:
    """Both ends of all connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * MANY), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def page_of(page: MetricsPage) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=LIMIT) as answer:
        found: bytes = answer.read()
    return found


def connected(page: MetricsPage) -> socket.socket:
    return socket.create_connection(("127.0.0.1", page.port), timeout=LIMIT)


def test_page_is_served_until_closed() -> None:
    metrics = Metrics("0.1.0")
    with metrics.serve("127.0.0.1", 0) as page:
        assert b"omfs_build_info" in page_of(page)
        with pytest.raises(ConfigError, match=r"metrics.address, metrics.port = 127.0.0.1:\d+: Address already in use"):
            metrics.serve("127.0.0.1", page.port)
    metrics.serve("127.0.0.1", page.port).close()


def test_it_is_served_on_ipv6_too() -> None:
    with Metrics("0.1.0").serve("::1", 0) as page, socket.create_connection(("::1", page.port), timeout=LIMIT) as one:
        one.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert one.recv(12) == b"HTTP/1.0 200"


@pytest.mark.parametrize("accepted", ["version=abc", "version=", "version=1.0.0; escaping=x"])
def test_k16_no_request_leaves_a_traceback_in_the_log(capfd: pytest.CaptureFixture[str], accepted: str) -> None:
    with Metrics("0.1.0").serve("127.0.0.1", 0) as page, connected(page) as one:
        one.sendall(f"GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text; {accepted}\r\n\r\n".encode())
        assert one.recv(12) == b"HTTP/1.0 200"
    assert capfd.readouterr().err == ""


def test_an_address_that_nobody_has_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^metrics.address, metrics.port = no such host:9345: [^\n]+$"):
        Metrics("0.1.0").serve("no such host", 9345)


def test_a_thousand_idle_connections_keep_nobody_out(many_files: None) -> None:
    threads = threading.active_count()
    with Metrics("0.1.0").serve("127.0.0.1", 0) as page, ExitStack() as held:
        idle = [held.enter_context(connected(page)) for _ in range(MANY)]
        assert b"omfs_build_info" in page_of(page)
        wait_until(lambda: page.connections <= MOST_CONNECTIONS, "the page to end the oldest connections")
        # One thread serves.
        wait_until(lambda: threading.active_count() <= threads + 1 + MOST_CONNECTIONS, "their threads to end")
        assert [one.recv(1) for one in idle[: MANY - MOST_CONNECTIONS]] == [b""] * (MANY - MOST_CONNECTIONS)


@pytest.mark.parametrize("sent", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_a_connection_that_asks_nothing_ends_by_itself(sent: bytes) -> None:
    with MetricsPage(Metrics("0.1.0").registry, "127.0.0.1", 0, seconds=0.2) as page, connected(page) as idle:
        idle.sendall(sent)
        assert idle.recv(1) == b""
        wait_until(lambda: not page.connections, "the page to forget the connection")
        assert b"omfs_build_info" in page_of(page)


def test_one_that_sends_a_byte_now_and_then_ends_too() -> None:
    with MetricsPage(Metrics("0.1.0").registry, "127.0.0.1", 0, seconds=1.0) as page, connected(page) as slow:
        slow.settimeout(0.05)

        def has_ended() -> bool:
            try:
                slow.sendall(b"x")
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(has_ended, "the page to end a slow connection")


def test_prometheus_has_as_long_as_it_waits_itself() -> None:
    assert CONNECTION_SECONDS >= 10
