"""Packages built in a container of their Debian release, and a container of it in which they are installed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "deploy" / "engine.sh"
BUILD_SECONDS = 1500.0  # on a busy machine; about one minute on an idle one
STEP_SECONDS = 600.0
_BUNDLE = "/etc/omfs-certificates.pem"


def engine(*command: str | Path, seconds: float = STEP_SECONDS) -> str:
    """What a command prints with the engine in its environment; CalledProcessError, with its output, if it fails."""
    done = subprocess.run(
        [ENGINE, "run", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(map(str, command))}:\n{done.stdout[-8000:]}"
    return done.stdout


def make_image(suite: str) -> str:
    """The image that builds packages of ``suite``: bookworm or trixie."""
    subprocess.run([ENGINE, "image", suite], check=True, capture_output=True, timeout=BUILD_SECONDS)
    name = f"omfs-packages:{suite}"
    file = ROOT / "deploy/container/packages.Dockerfile"
    build = ("docker", "build", "--quiet", "--build-arg", f"SUITE={suite}", "--tag", name, "--file", file)
    engine(*build, ROOT / "deploy/debian", seconds=BUILD_SECONDS)
    return name


def build_packages(image: str, source: Path, directory: Path) -> dict[str, Path]:
    """Run build.sh on ``source``; the packages by name. Quick if nothing has changed since the last time."""
    directory.mkdir(parents=True, exist_ok=True)
    cache = ROOT / "build/cache/pip"
    cache.mkdir(parents=True, exist_ok=True)
    mounts = {source: "/source:ro", directory: "/packages", cache: "/pip"}
    options = [word for path, place in mounts.items() for word in ("--volume", f"{path}:{place}")]
    command = ("docker", "run", "--rm", *options, *_pip_options(), "--env", "OMFS_PIP_CACHE=/pip", image)
    engine(*command, "/source/deploy/debian/build.sh", "/packages", seconds=BUILD_SECONDS)
    return {path.name.split("_")[0]: path for path in directory.glob("*.deb")}


def _pip_options() -> list[str]:
    """This machine's own index and certificates, for pip in a container."""
    settings = {name: os.environ.get(f"PIP_{name.upper().replace('-', '_')}") or _configured(name) for name in _NAMES}
    options = []
    if settings["cert"]:
        options += ["--volume", f"{settings['cert']}:{_BUNDLE}:ro", "--env", f"PIP_CERT={_BUNDLE}"]
    if settings["index-url"]:
        options += ["--env", f"PIP_INDEX_URL={settings['index-url']}"]
    return options


_NAMES = ("cert", "index-url")


def _configured(name: str) -> str:
    command = [sys.executable, "-m", "pip", "config", "get", f"global.{name}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=STEP_SECONDS, check=False).stdout.strip()


class PackageHost:
    """A bare Debian in a container, without systemd as process 1."""

    def __init__(self, name: str) -> None:
        self._name = name

    def run(self, script: str) -> str:
        """What a shell script prints; AssertionError, with its output, if it fails."""
        return engine("docker", "exec", self._name, "sh", "-ec", script)

    def fails(self, script: str) -> bool:
        return self.run(f"if ({script}) >/dev/null 2>&1; then echo no; else echo yes; fi").strip() == "yes"

    def copy(self, file: Path, place: str) -> None:
        engine("docker", "cp", file, f"{self._name}:{place}")

    def apt(self, command: str) -> str:
        return self.run(f"DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends {command}")


@contextmanager
def bare_debian(suite: str) -> Iterator[PackageHost]:
    name = f"omfs-packages-{uuid.uuid4().hex[:12]}"
    engine("docker", "run", "--detach", "--rm", "--name", name, f"debian:{suite}-slim", "sleep", "infinity")
    host = PackageHost(name)
    try:
        host.run("rm -f /etc/dpkg/dpkg.cfg.d/*")  # slim images leave manual pages out
        host.apt("update")
        yield host
    finally:
        engine("docker", "rm", "--force", name)
