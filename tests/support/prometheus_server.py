"""A Prometheus of the tests' own, on loopback, with the rules of deploy/prometheus."""

from __future__ import annotations

import random
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.support.monitoring_files import PROMETHEUS
from tests.support.waiting import LIMIT, wait_until

SCRAPES_EVERY = "1s"


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[str]:
    """Scrapes ``target`` (host and port) as the job omfsd; gives its URL. ``directory``: for its files."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": SCRAPES_EVERY, "evaluation_interval": SCRAPES_EVERY}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    del config["alerting"]
    shutil.copytree(PROMETHEUS / "rules", directory / "rules")
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    # An address of its own: a port of 127.0.0.1 that is free now may be taken when it starts.
    address = "127." + ".".join(str(random.randrange(1, 255)) for _ in range(3)) + ":9090"
    command = [
        "prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address={address}",
    ]  # fmt: skip
    log = directory / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=directory, stdout=stream, stderr=stream)
    try:
        wait_until(lambda: _is_ready(f"http://{address}", process), lambda: f"Prometheus: {log.read_text()[-1000:]}")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(LIMIT)


def _is_ready(server: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "Prometheus has ended"
    try:
        with urllib.request.urlopen(f"{server}/-/ready", timeout=LIMIT) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False
