"""Whatever a text says that others write, it is read, or refused with an error of ours, in time that grows with its
length. Real texts are damaged at random places: by Hypothesis, which finds short faults, and in a soak 100,000 more of
each kind.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omfs_daemon.cluster import job_refs, marks
from omfs_daemon.cluster.jobs import Job, JobRequest, JobState
from omfs_daemon.cluster.run_report import run_report
from omfs_daemon.config.entitlement_text import from_csv, from_toml
from omfs_daemon.config.load import parse_config
from omfs_daemon.daemon.api.callers import Caller, Role
from omfs_daemon.daemon.api.operations import OPERATIONS, perform
from omfs_daemon.daemon.node_client.node_answers import read_answer
from omfs_daemon.daemon.root_process.messages import read_root_request
from omfs_daemon.daemon.store.journal import replay
from omfs_daemon.errors import GatewayError, OmfsError
from omfs_daemon.omfs_node.request import BadRequest, read_request
from omfs_daemon.omfs_run.store import manifest
from omfs_daemon.policy.arrays.features import satisfies
from omfs_daemon.protocol import job_comment
from omfs_daemon.slurm.batch_options import batch_options
from omfs_daemon.slurm.batch_words import OptionWord
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.core_use import core_use, with_whole_cores
from omfs_daemon.slurm.commands.squeue_fields import JobRow
from omfs_daemon.slurm.gateway import Gateway
from tests.support.amounts import is_soak
from tests.support.hostile_text import HOSTILE_TOML, damaged, slower_by, try_at_random
from tests.support.recorded_slurm import FIXTURES, NotRecordedError, Record, Replay, read, read_ids
from tests.support.recording_scenarios import RECORDINGS

MORE = 100_000 if is_soak() else 0
often = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
RECORDED = sorted(path for name in ("waiting", "started", "nodes", "limits") for path in FIXTURES.glob(f"*/{name}"))
"""Questions to each release, and no orders."""


# -- what Slurm prints ------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a command printed, where, and which question asked for it, whose first answer is at ``since``."""

    directory: Path
    place: int
    text: str
    since: int
    ask: Callable[[Gateway], object]

    def read_as(self, text: str) -> None:
        """If this had been printed."""
        slurm = Replay(self.directory, self.since)
        slurm.put(self.place - self.since, text)
        with suppress(GatewayError, NotRecordedError):
            self.ask(CommandGateway(runner=slurm))


@cache
def answers() -> list[Answer]:
    """All that were recorded."""
    found = []
    for directory in RECORDED:
        slurm = Replay(directory)
        gateway = CommandGateway(runner=slurm)
        for _, ask in RECORDINGS[directory.name].questions(read_ids(directory)):
            before = slurm.left
            ask(gateway)
            left = {id(record) for record in slurm.left}
            asked = [record for record in before if id(record) not in left]
            since = place_of(directory, asked[0])
            found += [Answer(directory, place_of(directory, one), "\n".join(one.stdout), since, ask) for one in asked]
    return found


def place_of(directory: Path, record: Record) -> int:
    return next(place for place, one in enumerate(read(directory)) if one is record)


damaged_answers = st.sampled_from(answers()).flatmap(lambda answer: st.tuples(st.just(answer), damaged(answer.text)))


@often
@given(damaged_answers)
def test_slurms_answers_are_read_or_refused(what: tuple[Answer, str]) -> None:
    """Rows of squeue, nodes, partitions, settings, limits, accounts, and details of jobs."""
    answer, text = what
    answer.read_as(text)


@pytest.mark.parametrize("place", range(len(answers())))
def test_each_of_slurms_answers_is_read_or_refused(place: int) -> None:
    """In a soak a share of so many."""
    answer = answers()[place]
    try_at_random(answer.read_as, [answer.text], max(1, MORE // len(answers())))


# -- what users, nodes, and files say ---------------------------------------------------------------

COMMENT = (
    "mine omfs:method=dmtcp,requeue omfs:exclude=suspend omfs:signal=B:USR2 omfs:min_runtime=600 omfs:bound=1.5 "
    + (
        job_comment.make_run_comment(
            1, "ready", {"method": "dmtcp", "from": 3, "seconds": 1.25, "lost": 0.0, "times": 2}
        )
    )
)
REQUEST = {
    **{"version": 1, "do": "out", "method": "pageout", "node": "n1", "job": 7, "uid": 1000, "timeout": 60.0},
    **{"continue": True, "suspended": False, "options": {"swap": True}, "slurm": {"scontrol": "/usr/bin/scontrol"}},
}
ANSWER = {
    **{"ok": True, "state": "out", "processes": 3, "stopped": 3, "bytes": 300, "freed": 290, "seconds": 1.5},
    **{
        "methods": {"ve_swap": {"usable": False, "why": "x", "ves": [{"ve": 0, "memory": 9}]}},
        "jobs": {"12": {"ve": 1}},
    },
}
CONFIG = """[slurm]\npoll_seconds = 1.5\n[policy]\nquantum_seconds = 300\n[entitlements.bio]\npercent = 50
[entitlements.lab]\nparent = "bio"\ncpus = 8\n[[class]]\nname = "now"\nqos = ["now"]\nrealtime = true
act_at = {narrow-short = 1.1}\n[[class]]\nname = "rest"\nmethods = ["requeue", "suspend"]\n"""
LONG_TOML = [HOSTILE_TOML[name] for name in ("closed brackets", "an exponent", "digits", "hexadecimal digits")]
ROOT_REQUEST = {"do": "out", "job": 7, "method": "pageout", "nodes": ["n1", "n2"], "timeout": 60.0, "resume": True}


def comments(text: str) -> None:
    """All that is found in a comment is of the kind that it has to be, however the comment reads."""
    assert all(name.replace("_", "").isalnum() for name in job_comment.methods_in_comment(text))
    job_comment.excluded_in_comment(text)
    job_comment.signal_in_comment(text)
    assert (job_comment.min_runtime_in_comment(text) or 0) >= 0
    assert (job_comment.bound_in_comment(text) or 1.0) >= 0.0
    report = run_report(Job(7, "7", "ann", 1000, "bio", JobState.RUNNING, JobRequest(1), 0.0, comment=text, restarts=1))
    assert report is None or (0 <= report.seconds <= 1e7 and report.size >= 0)
    kept = job_comment.put_run_comment(text, "omfs:run=2:ready")
    assert job_comment.find_run_comment(kept) == (2, "ready", {})


def admin_comments(text: str) -> None:
    parts = marks.parse_admin_comment(text)
    sent = marks.compose_admin_comment("omfs:held:3", parts.mark, parts.sentence, parts.foreign)
    assert marks.parse_admin_comment(sent).mark == "omfs:held:3"


def job_references(text: str) -> None:
    asked = job_refs.asked_ref(text)
    assert asked is None or set(asked) <= set("0123456789_+")


def of_values(text: str) -> None:
    for reader in (
        *(values.whole, values.count, values.epoch, values.duration, values.memory, values.node_names, values.node_set),
        *(values.tasks, values.array_throttle, values.tres, values.gres, values.license_counts),
    ):
        with suppress(OmfsError, ValueError):
            reader(text)


def options_of_sbatch(text: str) -> None:
    with suppress(OmfsError):
        batch_options([OptionWord("job.sh, line 2", word) for word in text.split()])


WAITS = JobRow._make([""] * len(JobRow._fields))._replace(
    job_id="7", state="PENDING", cpus="9", min_cpus="3", tasks="3"
)


def uses_of_cores(text: str) -> None:
    """Whatever a job's row says of its cores, it counts for no fewer CPUs than it shows."""
    with suppress(OmfsError):
        for asked in core_use(text, "<s>").values():
            assert int(with_whole_cores(WAITS, asked, 2).cpus) >= int(WAITS.cpus)


def manifests(directory: Path) -> Callable[[str], None]:
    descriptor = os.open(directory, os.O_RDONLY)

    def read_damaged(text: str) -> None:
        (directory / manifest.NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
        with suppress(manifest.BadManifest):
            manifest.read_manifest(descriptor, "3")

    return read_damaged


def journals(directory: Path) -> Callable[[str], None]:
    """Lines whose checksum is right, although nobody wrote them so."""
    path = directory / "journal"

    def read_damaged(text: str) -> None:
        lines = (line.encode("utf-8", "surrogateescape") for line in text.split("\n"))
        path.write_bytes(b"".join(b"11 %08x %s\n" % (zlib.crc32(line), line) for line in lines))
        with suppress(OmfsError):
            replay(path)

    return read_damaged


class Control:
    """Takes every request that comes through."""

    def __getattr__(self, name: str) -> Callable[..., dict[str, object]]:
        return lambda caller, *given: {"ok": True}


CONTROL: Any = Control()
OPERATOR = Caller(0, 0, "root", Role.OPERATOR)


def control_requests(text: str) -> None:
    with suppress(ValueError, RecursionError, OmfsError):
        perform(CONTROL, OPERATOR, json.loads(text))


def node_requests(text: str) -> None:
    with suppress(BadRequest):
        read_request(text.encode("utf-8", "surrogateescape"), ["pageout", "ve_swap"])


def of_ours(reader: Callable[[str], object]) -> Callable[[str], None]:
    def read_damaged(text: str) -> None:
        with suppress(OmfsError):
            reader(text)

    return read_damaged


JOURNAL = (FIXTURES.parent / "state" / "journal" / "11").read_text().split("\n")
READERS: dict[str, tuple[Callable[[str], object], list[str]]] = {
    "comment": (comments, [COMMENT]),
    "AdminComment": (admin_comments, ["omfs:held:12?omfs:rel:11 waits for its turn | site: {a} | b", "adm:rel"]),
    "job reference": (job_references, ["7", "3_4", "169+1", "15_[25-32,40%3]"]),
    "features": (lambda text: satisfies(text, frozenset({"a", "rack1"})), ["a&(b|c)*4,[rack1*2&rack2]|d"]),
    "value": (
        of_values,
        [
            "n[1-3,07-12],m4",
            "1-02:03:04",
            "cpu=6,mem=1200M,gres/gpu:a100=2",
            "gpu:a100:2(S:0-1),ve:1",
            "a:1|b@c:2",
            "0-20:2%5",
        ],
    ),
    "options of sbatch": (
        options_of_sbatch,
        ["-n4 -N2-8 --mem=4G -t 1-00:00:00 --gres=gpu:2 -w n[1-4] --exclusive --comment=omfs:bound=2 --array=1-9%3"],
    ),
    "use of cores": (uses_of_cores, ["7<s>*<s>*<s>\n8<s>1<s>2<s>\n9<s>2<s>*<s>\n"]),
    "control request": (
        control_requests,
        [
            json.dumps({"op": name, "args": dict.fromkeys(operation.names, value)})
            for name, operation in OPERATIONS.items()
            for value in ("7", 3, ["7"], {"set": {"bio": 5}})
        ],
    ),
    "request to a node": (node_requests, [json.dumps(REQUEST)]),
    "answer of a node": (lambda text: read_answer(text.encode("utf-8", "surrogatepass")), [json.dumps(ANSWER)]),
    "request to the root process": (
        of_ours(lambda text: read_root_request(text.encode("utf-8", "surrogatepass"))),
        [json.dumps(ROOT_REQUEST)],
    ),
    "configuration": (of_ours(lambda text: parse_config(text, "omfs.toml")), [CONFIG, *LONG_TOML]),
    "entitlements": (
        of_ours(lambda text: (from_toml(text, "e.toml"), from_csv(text, "e.csv"))),
        ["[entitlements.bio]\npercent = 50\n", "account,percent,parent\nbio,50,\nlab,33.3,bio\n", *LONG_TOML],
    ),
}
FILES: dict[str, tuple[Callable[[Path], Callable[[str], None]], list[str]]] = {
    "manifest": (
        manifests,
        [
            json.dumps(
                {
                    **{"format": 2, "generation": "3", "method": "dmtcp", "tool": "DMTCP 4.2.0", "computed": 1.5},
                    **{"bytes": 9, "block": manifest.BLOCK, "argv": ["a"]},
                    "files": [{"name": "a/b.dmtcp", "size": 9, "crc32": ["0badcafe"]}],
                }
            )
        ],
    ),
    "journal": (journals, [line.split(" ", 2)[2] for line in JOURNAL if line]),
}


@pytest.mark.parametrize("kind", sorted(READERS))
def test_every_text_is_read_or_refused(kind: str) -> None:
    reader, texts = READERS[kind]

    @often
    @given(st.sampled_from(texts).flatmap(damaged) | st.text(max_size=200))
    def read_or_refuse(text: str) -> None:
        reader(text)

    read_or_refuse()
    try_at_random(reader, texts, MORE)


@pytest.mark.parametrize("kind", sorted(FILES))
def test_every_file_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    reader, texts = FILES[kind]
    reads = reader(tmp_path)

    @often
    @given(st.sampled_from(texts).flatmap(damaged))
    def read_or_refuse(text: str) -> None:
        reads(text)

    read_or_refuse()
    try_at_random(reads, texts, MORE)


REPEATED = (
    "(",
    "[",
    "a&",
    "((a|",
    "a,",
    "1-",
    "n[1-3],",
    "omfs:run=",
    "omfs:method=a,",
    " | ",
    "?",
    "{",
    '"',
    "-n1 ",
    "%",
)


@pytest.mark.parametrize("kind", sorted(READERS))
def test_ten_times_the_text_takes_no_hundred_times_the_time(kind: str) -> None:
    """Processor time, which other programs hardly change; a reader that squares the length would take a hundred times
    as long."""
    reader, texts = READERS[kind]
    for part in (*texts[:3], *REPEATED):
        times = 4_000 // len(part) + 1
        assert slower_by(reader, part * times, part * times * 10) < 40, part
