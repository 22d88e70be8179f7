"""CRIU as ordinary users: programs continue without gap or repeat, failures leave them running, no rights gained."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import LIMIT, wait_until

ROOT = Path(__file__).parents[2]
HELPER = Path("/opt/omfs-criu/libexec/omfs/omfs-criu")  # where deploy/criu.sh puts it
PYTHON = "/usr/bin/python3"  # one that every user may run
# A user for each test, so that what it leaves behind can be seen; tests run in several processes at once.
UIDS = itertools.count(600_000_000 + os.getpid() * 50)

# count WORKERS KIND MEGABYTES: each worker writes 0, 1, 2... to files that stay open, until there is a file `finish`;
# exit code 7, 42 after TERM.
COUNT = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>
static void term(int number) { (void)number; _exit(42); }
static void work(int me) {
    char name[64];
    int kept = -1;
    snprintf(name, sizeof(name), "unlinked.%d", me);
    int unlinked = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    unlink(name);
    snprintf(name, sizeof(name), "plain.%d", me);
    FILE *plain = fopen(name, "w");
    snprintf(name, sizeof(name), "append.%d", me);
    FILE *append = fopen(name, "a");
    flock(fileno(plain), LOCK_EX);
    for (int i = 0; access("finish", F_OK); i++) {
        /* The last number is also kept in a file that has no name. */
        if (pread(unlinked, &kept, sizeof(kept), 0) == sizeof(kept) && kept != i - 1) abort();
        if (pwrite(unlinked, &i, sizeof(i), 0) != sizeof(i)) abort();
        fprintf(plain, "%d\n", i), fflush(plain);
        fprintf(append, "%d\n", i), fflush(append);
        if (me == 0) { printf("%d\n", i), fflush(stdout); }
        usleep(5000);
    }
}
int main(int count, char **given) {
    int workers = atoi(given[1]), megabytes = atoi(given[3]);
    char *memory = malloc((size_t)megabytes << 20);
    unsigned seed = 1;
    (void)count;
    for (size_t at = 0; at < (size_t)megabytes << 20; at += 4) memcpy(memory + at, &(unsigned){ rand_r(&seed) }, 4);
    signal(SIGTERM, term);
    if (!strcmp(given[2], "openmp")) {
        #pragma omp parallel num_threads(workers)
        work(omp_get_thread_num());
    } else {
        for (int me = 1; me < workers; me++)
            if (fork() == 0) { work(me); _exit(0); }
        work(0);
        while (wait(NULL) > 0);
    }
    return 7;
}
"""

CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapAmb")


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """What all users may read: omfs-run's package and the counting program."""
    assert HELPER.exists(), "no omfs-criu: deploy/criu.sh puts it there"
    with tempfile.TemporaryDirectory(prefix="omfs-criu-test-") as name:
        path = Path(name)
        package = path / "omfs_daemon"
        for part in ("omfs_run", "protocol"):
            shutil.copytree(ROOT / "omfs_daemon" / part, package / part)
        (package / "__init__.py").touch()
        shutil.copy(Path(__file__).parents[1] / "support" / "criu_run.py", path)
        (path / "count.c").write_text(COUNT)
        subprocess.run(
            ["gcc", "-O1", "-fopenmp", "-o", path / "count", path / "count.c"], check=True, timeout=LIMIT, text=True
        )
        subprocess.run(["chmod", "-R", "a+rX", path], check=True, timeout=LIMIT)
        yield path


class User:
    """An ordinary user with a directory, and the driver run as that user."""

    def __init__(self, uid: int, home: Path, shared: Path) -> None:
        self.uid = uid
        self.home = home
        self._shared = shared
        self._runs: list[subprocess.Popen[str]] = []
        self._names = itertools.count(1)
        os.chown(home, uid, uid)

    def directory(self, name: str = "", mode: int = 0o700) -> Path:
        path = self.home / (name or f"generation-{next(self._names)}")
        path.mkdir()
        path.chmod(mode)
        os.chown(path, self.uid, self.uid)
        return path

    def popen(self, *arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
        who = {"user": self.uid, "group": self.uid, "extra_groups": []}
        return subprocess.Popen([str(one) for one in arguments], cwd=self.home, text=True, **who, **options)

    def helper(self, *arguments: str | Path, **options: Any) -> tuple[int, str]:
        """The exit code and the standard error of omfs-criu."""
        path = options.pop("path", HELPER)
        process = self.popen(path, *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
        error = process.communicate(timeout=LIMIT)[1]
        return process.returncode, error

    def run(self, *command: str | Path, **environment: str) -> Run:
        return Run(self._driver(command, environment))

    def count(self, workers: int = 1, kind: str = "fork", megabytes: int = 1) -> Run:
        """A program that counts until ``finish``."""
        return self.run(self._shared / "count", str(workers), kind, str(megabytes))

    def finish(self) -> None:
        (self.home / "finish").touch()

    def _driver(self, command: tuple[str | Path, ...], environment: dict[str, str]) -> subprocess.Popen[str]:
        script = self._shared / "criu_run.py"
        pipe = subprocess.PIPE
        home = {**os.environ, "HOME": str(self.home), "TMPDIR": str(self.home), "OMFS_CRIU": str(HELPER), **environment}
        process = self.popen(
            PYTHON, "-B", script, self._shared, self.home, *command, stdin=pipe, stdout=pipe, stderr=None, env=home
        )
        self._runs.append(process)
        return process

    def numbers(self, name: str) -> list[int]:
        try:
            lines = (self.home / name).read_text().split("\n")
        except FileNotFoundError:
            return []
        return [int(line) for line in lines[:-1]]

    def continues(self, name: str = "plain.0") -> None:
        before = len(self.numbers(name))
        wait_until(lambda: len(self.numbers(name)) > before + 5, f"{name} to grow")

    def processes(self) -> list[int]:
        """All that runs as this user, except zombies."""
        found = []
        for pid in (int(name) for name in names("/proc") if name.isdigit()):
            try:
                text = Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if f"\nUid:\t{self.uid}\t" in text and "\nState:\tZ" not in text:
                found.append(pid)
        return found

    def end(self) -> None:
        for run in self._runs:
            run.kill()
            run.communicate()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


class Run:
    """A driver's process: orders and answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = 0

    def order(self, do: str, **order: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the driver died"
        answer: dict[str, Any] = json.loads(line)
        self.pid = answer.get("pid", self.pid)
        return answer

    def has_answered(self) -> bool:
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def do(self, do: str, **order: Any) -> dict[str, Any]:
        self.order(do, **order)
        return self.answer()

    def good(self, do: str, **order: Any) -> dict[str, Any]:
        answer = self.do(do, **order)
        assert "failed" not in answer, answer
        return answer

    def checkpoint(self, directory: Path, timeout: float = LIMIT) -> dict[str, Any]:
        return self.do("checkpoint", directory=str(directory), timeout=timeout)

    def restart(self, directory: Path, image: list[Any], timeout: float = LIMIT) -> dict[str, Any]:
        return self.do("restart", directory=str(directory), image=image, timeout=timeout)

    def again(self, directory: Path) -> list[Any]:
        """Checkpoint and restart, both of which must work; the image."""
        answer = self.checkpoint(directory)
        assert "failed" not in answer, answer
        image: list[Any] = answer["image"]
        answer = self.restart(directory, image)
        assert "failed" not in answer, answer
        return image


@pytest.fixture
def make_user(shared: Path) -> Iterator[Callable[[], User]]:
    users: list[User] = []

    def make() -> User:
        users.append(User(next(UIDS), Path(tempfile.mkdtemp(prefix="omfs-criu-user-")), shared))
        return users[-1]

    try:
        yield make
    finally:
        for user in users:
            user.end()
            shutil.rmtree(user.home, ignore_errors=True)


@pytest.fixture
def user(make_user: Callable[[], User]) -> User:
    return make_user()


def names(directory: str | Path) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir())


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize(("workers", "kind"), [(1, "fork"), (3, "fork"), (4, "openmp")])
def test_continues_without_gap_or_repeat_twice_in_a_row(user: User, workers: int, kind: str) -> None:
    run = user.count(workers, kind)
    run.good("start")
    for _ in range(2):
        user.continues(f"plain.{workers - 1}")
        run.again(user.directory())
    user.continues(f"plain.{workers - 1}")
    user.finish()
    assert run.good("wait", timeout=LIMIT)["code"] == 7
    for me in range(workers):
        numbers = user.numbers(f"plain.{me}")
        assert numbers == list(range(len(numbers)))
        assert user.numbers(f"append.{me}") == numbers
    assert user.numbers("out") == user.numbers("plain.0")


def test_nothing_runs_between_checkpoint_and_restart(user: User) -> None:
    run = user.count(3)
    run.good("start")
    user.continues()
    directory = user.directory()
    files = run.checkpoint(directory)["image"][0]
    assert user.processes() == [run.process.pid]
    assert sorted(files) == names(directory), "nothing but the images, and all of them"


def test_signals_reach_the_program_before_and_after(user: User, make_user: Callable[[], User]) -> None:
    run = user.count()
    run.good("start")
    user.continues()
    run.good("signal", number=int(signal.SIGTERM))
    assert run.good("wait", timeout=LIMIT)["code"] == 42
    other = make_user()
    run = other.count()
    run.good("start")
    other.continues()
    run.again(other.directory())
    run.good("signal", number=int(signal.SIGTERM))
    assert run.good("wait", timeout=LIMIT)["code"] == 42


def test_the_end_by_a_signal_is_reported(user: User) -> None:
    run = user.count()
    run.good("start")
    user.continues()
    run.again(user.directory())
    run.good("signal", number=int(signal.SIGKILL))
    assert run.good("wait", timeout=LIMIT)["code"] == 128 + 9


def test_signals_to_the_whole_job_leave_the_parent(user: User) -> None:
    run = user.count()
    run.good("start")
    user.continues()
    run.again(user.directory())
    parent = int(status(run.pid)["PPid"])
    os.kill(parent, signal.SIGTERM)
    os.kill(parent, signal.SIGUSR1)
    os.kill(run.pid, signal.SIGTERM)
    assert run.good("wait", timeout=LIMIT)["code"] == 42


@pytest.fixture
def small_disk(user: User) -> Iterator[Path]:
    path = user.directory("small")
    options = f"size=2m,uid={user.uid},gid={user.uid},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "omfs-test", path], check=True, timeout=LIMIT)
    try:
        yield path
    finally:
        user.end()
        subprocess.run(["umount", path], check=True, timeout=LIMIT)


def test_a_full_disk_leaves_the_program_running(user: User, small_disk: Path) -> None:
    run = user.count(3, megabytes=8)
    run.good("start")
    user.continues("plain.2")
    answer = run.checkpoint(small_disk)
    assert (answer["failed"], answer["alive"]) == ("no_space", True), answer
    for me in range(3):
        user.continues(f"plain.{me}")
    assert names(small_disk) == [], "what cannot be used fills no disk"
    run.again(user.directory())
    user.continues("plain.2")


def interrupted(user: User, run: Run, act: Callable[[Path], bool], timeout: float = LIMIT) -> dict[str, Any]:
    """The answer to a checkpoint that fails because of ``act(directory)``, which is called until it returns true.

    A busy machine may miss the moment; then the checkpoint is good, and the next one is tried.
    """
    for _ in range(20):
        run.order("checkpoint", directory=str(directory := user.directory()), timeout=timeout)
        while not run.has_answered():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the program is out
                if act(directory):
                    break
        answer = run.answer()
        if "failed" in answer:
            return answer
        assert "failed" not in run.restart(directory, answer["image"])
    raise AssertionError("20 checkpoints, and nothing happened to them")


def test_a_hung_criu_is_ended_and_the_program_continues(user: User) -> None:
    run = user.count(2, megabytes=150)
    run.good("start")
    user.continues("plain.1")
    stopped: list[int] = []

    def stop_criu(directory: Path) -> bool:
        # It holds the program and has begun to write its memory.
        tracer = int(status(run.pid)["TracerPid"])
        if tracer and list(directory.glob("pages-*.img")):
            os.kill(tracer, signal.SIGSTOP)
            stopped.append(tracer)
        return bool(stopped)

    answer = interrupted(user, run, stop_criu, timeout=3.0)
    assert (answer["failed"], answer["alive"]) == ("tool_hung", True), answer
    assert not set(stopped) & set(user.processes())
    for me in range(2):
        user.continues(f"plain.{me}")
    assert status(run.pid)["TracerPid"] == "0"
    run.again(user.directory())
    user.continues("plain.1")


def test_a_criu_that_hangs_early_is_ended_and_the_program_continues(user: User) -> None:
    """Not all processes are held yet, or the code that CRIU puts into the program still runs there."""
    run = user.count(4, "openmp")
    run.good("start")
    user.continues("plain.3")

    def stop_criu(_: Path) -> bool:
        tracer = int(status(run.pid)["TracerPid"])
        if tracer:
            os.kill(tracer, signal.SIGSTOP)
        return tracer > 0

    answer = interrupted(user, run, stop_criu, timeout=2.0)
    assert (answer["failed"], answer["alive"]) == ("tool_hung", True), answer
    for me in range(4):
        user.continues(f"plain.{me}")


def test_a_program_woken_by_others_runs_on(user: User) -> None:
    """Its images are of the past as soon as it has run again."""
    run = user.count(megabytes=150)
    run.good("start")
    user.continues()

    def wake(_: Path) -> bool:
        is_stopped = status(run.pid)["State"].startswith("T")
        if is_stopped:
            os.kill(run.pid, signal.SIGCONT)
        return is_stopped

    answer = interrupted(user, run, wake)
    assert (answer["failed"], answer["alive"]) == ("woken", True), answer
    newest = max(user.home.glob("generation-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    assert names(newest) == []
    user.continues()


def occupy(pid: int) -> subprocess.Popen[bytes]:
    """A process of that number."""
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        process = subprocess.Popen(["sleep", "600"])
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
    raise AssertionError(f"could not get number {pid}")


def test_waits_for_its_numbers_to_be_free(user: User) -> None:
    run = user.count()
    run.good("start")
    user.continues()
    directory = user.directory()
    image = run.checkpoint(directory)["image"]
    occupant = occupy(run.pid)
    try:
        answer = run.restart(directory, image, timeout=10.0)
        assert answer["failed"] == "pid_taken", answer
        assert user.processes() == [run.process.pid]
        run.order("restart", directory=str(directory), image=image, timeout=LIMIT)
        before = len(list(user.home.glob("scratch-*/restore-*")))
        wait_until(lambda: len(list(user.home.glob("scratch-*/restore-*"))) > before + 1, "another try")
    finally:
        occupant.kill()
        occupant.wait()
    assert "failed" not in run.answer()
    user.continues()
    user.finish()
    assert run.good("wait", timeout=LIMIT)["code"] == 7
    numbers = user.numbers("plain.0")
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize(
    ("name", "why"),
    # CRIU 4.2.1 waits forever for memory that is not there.
    [("inventory.img", "tool_failed"), ("core-{pid}.img", "tool_failed"), ("pages-1.img", "tool_hung")],
)
def test_a_bad_image_is_reported_and_leaves_nothing(user: User, name: str, why: str) -> None:
    run = user.count()
    run.good("start")
    user.continues()
    directory = user.directory()
    image = run.checkpoint(directory)["image"]
    path = directory / name.format(pid=run.pid)
    os.truncate(path, path.stat().st_size // 2)
    answer = run.restart(directory, image, timeout=3.0 if why == "tool_hung" else LIMIT)
    assert answer["failed"] == why and "\n" not in answer["message"], answer
    assert user.processes() == [run.process.pid]


def test_what_is_restored_holds_no_capability_and_nothing_of_ours(user: User) -> None:
    run = user.count(3)
    run.good("start")
    user.continues("plain.2")

    def files() -> dict[str, str]:
        return {one: str(Path(f"/proc/{run.pid}/fd/{one}").readlink()) for one in names(f"/proc/{run.pid}/fd")}

    before, environment = files(), Path(f"/proc/{run.pid}/environ").read_bytes()
    run.again(user.directory())
    assert files() == before
    assert Path(f"/proc/{run.pid}/environ").read_bytes() == environment
    pids = [pid for pid in user.processes() if pid != run.process.pid]
    assert len(pids) == 4, "the program, its two children, and the parent"
    for pid in pids:
        now = status(pid)
        assert {int(now[name], 16) for name in CAPABILITIES} == {0}, (pid, now)
        assert now["NoNewPrivs"] == "1"


def _varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + _varint(number >> 7) if number > 127 else bytes([number])


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: number and value, whose wire types are 0 (int) and 2 (bytes) only."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key, value = number(), number()
        assert key & 7 in (0, 2), "a message of another kind"
        if key & 7 == 0:
            yield key >> 3, value
        else:
            yield key >> 3, data[at : at + value]
            at += value


def _message(fields: list[tuple[int, int | bytes]]) -> bytes:
    return b"".join(
        _varint(name << 3) + _varint(value)
        if isinstance(value, int)
        else _varint(name << 3 | 2) + _varint(len(value)) + value
        for name, value in fields
    )


def _forge(core: Path, change: Callable[[int, int, int], int]) -> None:
    """Rewrite the credentials in an image: ``change(field, turn, value)`` (CRIU's core.proto and creds.proto)."""
    raw = core.read_bytes()
    end = 12 + int.from_bytes(raw[8:12], "little")
    turns: dict[int, int] = {}

    def credentials(name: int, value: int | bytes) -> tuple[int, int | bytes]:
        turns[name] = turns.get(name, -1) + 1
        return name, change(name, turns[name], value) if isinstance(value, int) else value

    def thread(name: int, value: int | bytes) -> tuple[int, int | bytes]:
        is_them = name == 10 and isinstance(value, bytes)
        return name, _message([credentials(*one) for one in _fields(value)]) if is_them else value  # type: ignore[arg-type]

    body = [
        (name, _message([thread(*one) for one in _fields(value)]) if name == 5 and isinstance(value, bytes) else value)
        for name, value in _fields(raw[12:end])
    ]
    forged = _message(body)
    assert turns, "no credentials found"
    core.write_bytes(raw[:8] + len(forged).to_bytes(4, "little") + forged + raw[end:])


CHECKPOINT_RESTORE = 40


@pytest.mark.parametrize(
    ("change", "why"),
    [
        # Fields 9, 10, 11: inheritable, permitted, effective; 32 capabilities each turn. 1 to 8: the user's numbers.
        (lambda name, turn, value: 0xFFFFFFFF >> (23 * turn) if name in (9, 10, 11) else value, "every capability"),
        (lambda name, _turn, value: 1 << 21 if name in (9, 10, 11) else value, "CAP_SYS_ADMIN"),
        (lambda name, _turn, value: 0 if name <= 8 else value, "root"),
        (lambda name, turn, value: 1 << (8 * turn) if name in (10, 11) and turn else value, "what the helper has"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_forged_image_gains_nothing_but_what_the_guide_tells(
    user: User, change: Callable[[int, int, int], int], why: str
) -> None:
    run = user.count()
    run.good("start")
    user.continues()
    directory = user.directory()
    image = run.checkpoint(directory)["image"]
    _forge(directory / f"core-{run.pid}.img", change)
    answer = run.restart(directory, image)
    gained = 0
    for pid in user.processes():
        now = status(pid)
        assert now["Uid"].split() == [str(user.uid)] * 4
        if pid != run.process.pid:
            assert now["NoNewPrivs"] == "1"
        for name in CAPABILITIES:
            gained |= int(now[name], 16)
    assert gained in (0, 1 << CHECKPOINT_RESTORE), f"{why}: {gained:x}"
    if why == "what the helper has":
        assert "failed" not in answer, "else this test proves nothing: the image could not be read any more"
    else:
        assert "failed" in answer


def test_strays_are_not_left_behind(user: User) -> None:
    run = user.run("sh", "-c", "(setsid sleep 600 &); exec sleep 600")
    run.good("start")
    parent = int(status(run.pid)["PPid"])
    children = Path(f"/proc/{parent}/task/{parent}/children")
    wait_until(lambda: len(children.read_text().split()) == 2, "the stray")
    answer = run.checkpoint(user.directory())
    assert (answer["failed"], answer["alive"]) == ("stray_process", True), answer
    run.good("kill")
    assert user.processes() == [run.process.pid], "strays end with the rest"


def test_a_file_that_could_not_be_opened_again_stops_nothing(user: User) -> None:
    secret = user.home / "secret"
    secret.write_text("x")
    os.chown(secret, user.uid, user.uid)
    run = user.run("sh", "-c", "exec 5<secret; echo > opened; exec sleep 600")
    run.good("start")
    wait_until((user.home / "opened").exists, "the file to be open")
    secret.chmod(0)
    answer = run.checkpoint(user.directory())
    assert (answer["failed"], answer["alive"]) == ("unopenable_file", True), answer
    secret.chmod(0o400)
    run.again(user.directory())


SOCKETS = """
import socket, sys, time
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen()
if sys.argv[1] == "connected":
    one = socket.create_connection(listening.getsockname())
    two, _ = listening.accept()
for turn in range(100_000):
    print(turn, flush=True)
    time.sleep(0.01)
"""


def test_a_listening_socket_is_restored(user: User) -> None:
    run = user.run(PYTHON, "-c", SOCKETS, "listening")
    run.good("start")
    user.continues("out")
    run.again(user.directory())
    user.continues("out")


def test_a_connection_is_refused_and_the_program_continues(user: User) -> None:
    run = user.run(PYTHON, "-c", SOCKETS, "connected")
    run.good("start")
    user.continues("out")
    answer = run.checkpoint(user.directory())
    assert (answer["failed"], answer["alive"]) == ("tool_failed", True) and "TCP" in answer["message"], answer
    user.continues("out")


PIPES = """
import multiprocessing, os, time
def double(number):
    time.sleep(0.005)
    return number
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        begin = 0
        while not os.path.exists("finish"):
            for number in pool.imap(double, range(begin, begin + 10)):
                print(number, flush=True)
            begin += 10
"""


def test_pipes_and_semaphores_between_the_programs_processes_are_restored(user: User) -> None:
    (user.home / "pipes.py").write_text(PIPES)
    run = user.run(PYTHON, user.home / "pipes.py")
    run.good("start")
    user.continues("out")
    run.again(user.directory())
    user.continues("out")
    user.finish()
    assert run.good("wait", timeout=LIMIT)["code"] == 0
    numbers = user.numbers("out")
    assert numbers == list(range(len(numbers)))


def test_a_program_that_ended_meanwhile_keeps_its_exit_code(user: User) -> None:
    run = user.run("sh", "-c", "exit 3")
    run.good("start")
    wait_until(lambda: user.processes() == [run.process.pid], "the end")
    answer = run.checkpoint(user.directory())
    assert (answer["failed"], answer["code"]) == ("ended", 3)


def test_what_cannot_be_run_is_reported(user: User) -> None:
    answer = user.run("/nonexistent/program").do("start")
    assert (answer["failed"], answer["message"]) == ("no_program", "/nonexistent/program: not found")
    (user.home / "text").write_text("no program")
    assert user.run(user.home / "text").do("start")["failed"] == "not_executable"


def test_the_users_environment_and_configuration_reach_criu_nowhere(user: User) -> None:
    bad = user.home / "bad.conf"
    bad.write_text("no-such-option\n")
    user.directory(".criu").joinpath("default.conf").write_text("no-such-option\n")
    run = user.run("sleep", "600", CRIU_CONFIG_FILE=str(bad), CRIU_FAULT="1", CRIU_LIBS_DIR=str(user.home))
    assert run.good("version")["version"].startswith("criu 4.")
    process = user.popen(HELPER, "version", stderr=subprocess.PIPE, env={"LD_PRELOAD": "/x.so", "LD_DEBUG": "all"})
    assert process.communicate(timeout=LIMIT)[1] == ""


def test_a_helper_that_cannot_work_is_found_out_at_the_start(user: User) -> None:
    run = user.run("sleep", "600", OMFS_CRIU="/nonexistent/omfs-criu")
    assert run.do("start")["failed"] == "tool_missing"
    powerless = user.home / "omfs-criu"
    shutil.copy(HELPER, powerless)  # without its file capability
    shutil.copy(f"{HELPER}-attach", f"{powerless}-attach")
    run = user.run("sleep", "600", OMFS_CRIU=str(powerless))
    answer = run.do("version")
    assert answer["failed"] == "self_test" and "CAP_CHECKPOINT_RESTORE" in answer["message"], answer
    wait_until(lambda: len(user.processes()) == 2, "only the drivers to be left")


def test_what_the_helper_refuses_leaves_the_program_running(user: User) -> None:
    run = user.run("sleep", "600")
    (user.home / "images").mkdir(mode=0o755)
    run.good("start")
    answer = run.checkpoint(user.home / "images")
    assert (answer["failed"], answer["alive"]) == ("tool_failed", True), answer
    assert "belongs to user 0" in answer["message"]


REFUSED, BAD_USAGE = 77, 64


@pytest.mark.parametrize(
    ("pid", "code", "words"),
    [
        ("other", REFUSED, "belongs to user"),
        ("1", REFUSED, "belongs to user 0"),
        ("0", BAD_USAGE, "not a process number"),
        ("-1", BAD_USAGE, "not a process number"),
        ("12 34", BAD_USAGE, "not a process number"),
        ("1\n", BAD_USAGE, "not a process number"),
        ("self", BAD_USAGE, "not a process number"),
        ("99999999999999999999", BAD_USAGE, "not a process number"),
        ("999999999", REFUSED, "no process"),
    ],
)
def test_only_own_processes_are_dumped(
    user: User, make_user: Callable[[], User], pid: str, code: int, words: str
) -> None:
    victim = make_user().popen("sleep", "600")
    images, work = user.directory(), user.directory()
    try:
        given = str(victim.pid) if pid == "other" else pid
        assert (answer := user.helper("dump", given, images, work))[0] == code and words in answer[1], answer
        assert answer[1].count("\n") == 1
        assert names(images) == names(work) == []
        assert status(victim.pid)["State"][0] in "RSD"
    finally:
        victim.kill()
        victim.wait()


def test_the_kernel_too_keeps_criu_from_others(user: User, make_user: Callable[[], User]) -> None:
    """With the capability that the helper gives, and without the helper's own look at the owner."""
    victim = make_user().popen("sleep", "600")
    tool = ["setpriv", f"--reuid={user.uid}", f"--regid={user.uid}", "--clear-groups", "--no-new-privs"]
    tool += ["--inh-caps=-all,+checkpoint_restore", "--ambient-caps=-all,+checkpoint_restore"]
    images = user.directory()
    command = [*tool, str(HELPER.parents[2] / "sbin/criu"), "dump", "-t", str(victim.pid), "-D", str(images)]
    try:
        done = subprocess.run([*command, "--unprivileged"], capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode != 0 and "Operation not permitted" in done.stderr, done.stderr
        assert status(victim.pid)["State"][0] in "RSD"
    finally:
        victim.kill()
        victim.wait()


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("foreign", REFUSED, "belongs to user 0"),
        ("symlink", REFUSED, "not a directory"),
        ("open", REFUSED, "may be written by others"),
        ("relative", BAD_USAGE, "absolute path"),
        ("missing", REFUSED, "No such file"),
        ("file", REFUSED, "not a directory"),
        ("/proc/self/fd/0", REFUSED, "not a directory"),
    ],
)
@pytest.mark.parametrize("do", ["dump", "restore"])
def test_only_own_directories_are_used(user: User, do: str, kind: str, code: int, words: str, place: int) -> None:
    foreign = user.home / "foreign"
    foreign.mkdir(mode=0o777)
    foreign.chmod(0o755)
    (user.home / "symlink").symlink_to(user.directory("real"))
    user.directory("open", mode=0o777)
    (user.home / "file").touch()
    given: list[str | Path] = [user.directory("images"), user.directory("work")]
    given[place] = "real" if kind == "relative" else user.home / kind
    program = user.popen("sleep", "600")
    try:
        answer = user.helper(do, *([str(program.pid)] if do == "dump" else []), *given)
        assert answer[0] == code and words in answer[1], answer
        assert names(foreign) == names(user.home / "open") == names(user.home / "real") == []
        assert status(program.pid)["State"][0] in "RSD"
    finally:
        program.kill()
        program.wait()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["check"],
        ["dump"],
        ["version", "--help"],
        ["dump", "1", "/a", "/b", "--leave-running"],
        ["restore", "/a", "/b", "--exec-cmd"],
        ["restore", "--action-script=/a", "/a", "/b"],
        ["service", "/a", "/b"],
        ["swrk", "3"],
    ],
)
def test_odd_arguments_are_refused(user: User, arguments: list[str]) -> None:
    code, error = user.helper(*arguments)
    assert code == BAD_USAGE and error.startswith("omfs-criu: usage:") and error.count("\n") == 1


def test_root_is_refused() -> None:
    done = subprocess.run([HELPER, "version"], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == REFUSED and "ordinary users" in done.stderr


@pytest.mark.parametrize(("directory", "program"), [(0o777, 0o755), (0o755, 0o775), (0o755, 0o757)])
def test_a_criu_that_others_may_change_is_refused(user: User, shared: Path, directory: int, program: int) -> None:
    place = Path(tempfile.mkdtemp(dir="/opt"))
    try:
        (place / "sbin").mkdir()
        shutil.copy("/bin/true", place / "sbin/criu")
        make = ["make", "-C", ROOT / "plugins/criu", "all", f"BUILD={place}", f"CRIU={place}/sbin/criu"]
        subprocess.run(make, check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)
        place.chmod(0o755)
        (place / "sbin").chmod(0o755)
        (place / "sbin/criu").chmod(0o755)
        assert user.helper("version", path=place / "omfs-criu") == (0, ""), "root's alone: it is run"
        (place / "sbin").chmod(directory)
        (place / "sbin/criu").chmod(program)
        code, error = user.helper("version", path=place / "omfs-criu")
        assert code == REFUSED and "root's alone" in error
        (place / "sbin").chmod(0o755)
        (place / "sbin/criu").chmod(0o755)
        os.chown(place / "sbin/criu", user.uid, 0)
        assert user.helper("version", path=place / "omfs-criu")[0] == REFUSED
    finally:
        shutil.rmtree(place)
