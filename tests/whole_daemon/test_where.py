"""Where a job would start first, on the fake: what is left open is tried, and nothing is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, cast

import pytest

from omfs_daemon.cluster.jobs import Allocation, Job, JobRequest, JobState
from omfs_daemon.cluster.limits import Association, Qos, SiteLimits, UsageLimits
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.api import callers
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.shared_core import SharedCore
from omfs_daemon.daemon.api.where_view import StartsElsewhere, WhereRowView
from omfs_daemon.daemon.learning.other_clusters import OtherClusters
from omfs_daemon.errors import ConfigError, ControlError, GatewayError
from omfs_daemon.predict.start_times import start_times
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.gateway import AccountRow
from omfs_daemon.starts import own_nodes
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from tests.whole_daemon.test_predictions import LearningStand
from tests.whole_daemon.test_process import ALICE, BOB, ROOT

OF_PARTITION = '[[class]]\nname = "at once"\npartition = ["urgent"]\nurgent = true\n'
USUAL = "--comment=omfs:method=requeue -A bio"
DISTANT = frozenset({"m1"})


class Elsewhere:
    """Stands for ``OtherClusters``."""

    def __init__(self, snapshots: Mapping[str, Snapshot | str], conf: Path | None = None) -> None:
        self._snapshots, self._conf = snapshots, conf

    def names(self) -> tuple[str, Mapping[str, Path | None]]:
        return "here", dict.fromkeys(self._snapshots, self._conf)

    def snapshot(self, name: str) -> Snapshot | str:
        return self._snapshots[name]


class WhereStand(LearningStand):
    """Four nodes of four CPUs; partition ``small`` has n1 alone. ``gpus``: on how many of the nodes there are two."""

    def __init__(self, directory: Path, gpus: int = 0) -> None:
        super().__init__(directory)
        self.path.write_text(self.path.read_text().replace("[[class]]", OF_PARTITION + "[[class]]", 1))
        self.service.close()
        everywhere = frozenset({"n1", "n2", "n3", "n4"})
        partitions = [
            Partition("main", everywhere, is_default=True, default_time=600.0),
            Partition("small", frozenset({"n1"}), max_time=1800.0),
            Partition("urgent", everywhere),
        ]
        names = enumerate(sorted(everywhere))
        nodes = [Node(name, 4, 8000 << 20, gres=(("gpu", 2),) if at < gpus else ()) for at, name in names]
        self.slurm = FakeSlurm(lambda: self.now, nodes, partitions)
        self.gateway = FakeGateway(self.slurm, [AccountRow("bio", ""), AccountRow("physics", "")])
        self.service = self.serve()
        self.beside({})

    def beside(self, snapshots: Mapping[str, Snapshot | str], conf: Path | None = None) -> None:
        clusters = cast(OtherClusters, Elsewhere(snapshots, conf))
        self.elsewhere = StartsElsewhere(clusters, SharedCore(lambda: 0.0, lambda _: None))

    def where(self, words: str, caller: Caller = ALICE, usual: str = USUAL) -> list[WhereRowView]:
        pairs = [("the command line", word) for word in (*usual.split(), *words.split())]
        self.service.answers._starts_elsewhere = self.elsewhere
        return self.service.answers.where(caller, pairs)["rows"]


@pytest.fixture
def stand(tmp_path: Path) -> Any:
    found = WhereStand(tmp_path)
    yield found
    found.service.close()


def waits(row: WhereRowView, stand: WhereStand) -> float:
    assert row["p50"] is not None
    return row["p50"] - stand.predictions.probed(lambda *_: [])[0]


def distant(busy: float) -> Snapshot:
    """A cluster of one node that is taken for so many seconds."""
    request, here = JobRequest(4, partitions=("far",)), (Allocation("m1", 4, 0),)
    eves = Job(1, "1", "eve", 9, "x", JobState.RUNNING, request, 0.0, "far", start=0.0, allocations=here)
    jobs = [replace(eves, time_limit=busy)] if busy else []
    nodes = {"m1": Node("m1", 4, 8000 << 20)}
    return Snapshot(500.0, {job.id: job for job in jobs}, nodes, {"far": Partition("far", DISTANT, is_default=True)})


def test_each_partition_is_tried_the_default_one_first(stand: WhereStand) -> None:
    stand.go(5)
    rows = stand.where("-n4 -t20")
    assert [(row["partition"], row["feasible"]) for row in rows] == [("main", True), ("small", True)]
    assert [row["options"] for row in rows] == [["-p", "main"], ["-p", "small"]]
    assert all(row["p50"] == row["p10"] for row in rows), "everything is idle"
    assert stand.where("-n4 -p small -t20")[0]["options"] == []
    assert not stand.sent, "nothing is ordered"
    assert not [job for job in stand.gateway.jobs() if job.user == "alice"], "and nothing submitted"


def test_nobody_is_sent_to_partitions_for_urgent_jobs_who_does_not_ask(stand: WhereStand) -> None:
    stand.go(5)
    assert "urgent" not in {row["partition"] for row in stand.where("-n4")}
    assert [row["partition"] for row in stand.where("-n4 -p urgent")] == ["urgent"]


def test_a_part_of_the_nodes_may_be_free_later_than_all(stand: WhereStand) -> None:
    on_small = JobRequest(4, partitions=("small",), max_nodes=1)
    stand.put("bob", 900, request=on_small)
    stand.put("bob", 900, request=on_small)
    stand.go(10)
    main, small = stand.where("-n4 -t20")
    assert (main["partition"], waits(main, stand)) == ("main", 0)
    assert waits(small, stand) > 1500, "behind both jobs that can run on that node only"


def test_a_job_that_excludes_a_node_waits_in_the_same_queue(stand: WhereStand) -> None:
    waiting = [stand.put("bob", 900) for _ in range(8)][4:]
    stand.go(10)
    before = stand.service.answers.when(ROOT, [str(waiting[3])], False)
    (row,) = stand.where("-n4 -p main -t20 --exclude=n1")
    assert waits(row, stand) > 1500, "behind the four that run and the four that wait"
    stand.put("bob", 900, request=JobRequest(4, partitions=("main",), excluded_nodes=frozenset({"n1"})))
    stand.go(20)
    after, last = (stand.service.answers.when(ROOT, [ref], False) for ref in (str(waiting[3]), "9"))
    assert after["jobs"][0]["p50"] == pytest.approx(before["jobs"][0]["p50"], abs=60), "not one after the other on n1"
    assert last["jobs"][0]["p50"] == pytest.approx(before["taken"] + 2000, abs=100)


def test_a_job_that_names_its_nodes_waits_for_them(stand: WhereStand) -> None:
    on_n1 = JobRequest(4, partitions=("main",), max_nodes=1, required_nodes=frozenset({"n1"}))
    for _ in range(2):
        stand.put("bob", 900, request=on_n1, time_limit=900.0)
    stand.go(10)
    (free,), (named,), (more,) = (stand.where(f"-p main -t20 {words}") for words in ("-n4", "-n4 -w n1", "-n8 -w n1"))
    assert waits(free, stand) == 0
    assert waits(named, stand) == pytest.approx(1800, abs=60), "for what runs there, and what waits for the same node"
    assert waits(more, stand) == pytest.approx(1800, abs=60), "Slurm adds a node, but not instead of this one"
    assert [waits(row, stand) for row in stand.where("-n4 -w n[2-3] -p main -t20")] == [0]


def test_nodes_beside_those_that_are_named_are_not_considered(stand: WhereStand) -> None:
    stand.go(5)
    not_seen = []
    for words in ("-n4 -w n1", "-N1 -w n1", "-N2 -w n[1-2]", "-N1-2 -w n1", "-N2 -w n1"):
        pairs = [("the command line", word) for word in words.split()]
        not_seen.append(stand.service.answers.where(ALICE, pairs)["not_seen"])
    assert not_seen == [[], [], [], ["--nodelist"], ["--nodelist"]]


def test_the_queue_is_placed_once_for_all_jobs_that_the_same_nodes_suit(
    stand: WhereStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in (300, 600, 900, 900, 900):
        stand.put("bob", seconds, time_limit=seconds)
    stand.go(10)
    placed: list[int] = []

    def counted(totals: list[int], *others: Any) -> Any:
        placed.append(totals[0])
        return start_times(totals, *others)

    monkeypatch.setattr(own_nodes, "start_times", counted)
    together = stand.where("-N1-3 --exclusive --exclude=n1 -p main -t10")
    assert placed == [12], "once for n2, n3, and n4"
    alone = [stand.where(f"-N{count} --exclusive --exclude=n1 -p main -t10")[0] for count in (1, 2, 3)]
    found = {row["nodes"]: waits(row, stand) for row in together}
    assert found == pytest.approx({row["nodes"]: waits(row, stand) for row in alone}, abs=10)
    assert found[1] < found[3]


def test_a_job_within_its_entitlement_goes_before_those_that_are_not(stand: WhereStand) -> None:
    for _ in range(8):
        stand.put("alice", 900)
    stand.go(10)
    bio, physics = (stand.where(f"-n4 -p main -A {account}")[0] for account in ("bio", "physics"))
    assert waits(physics, stand) < waits(bio, stand)


def test_learned_run_times_say_when_it_would_end(stand: WhereStand) -> None:
    for number in range(6):
        stand.put("alice", 60, name=f"train_{number}")
    stand.go(300)
    (row,) = stand.where("-n4 -p main --job-name=train_77 -A bio -t15")
    assert row["samples"] == 6
    assert row["run_p50"] == pytest.approx(60, abs=6)
    assert row["end_p50"] is not None and row["p50"] is not None
    assert row["end_p50"] - row["p50"] == pytest.approx(62, abs=8)
    (others,) = stand.where("-n4 -p main --job-name=train_77 -A bio -t15", BOB)
    assert others["key"] != row["key"], "of other users' jobs only what all share"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("-n4 -p none", "it has no partition none"),
        ("-n99 -p main", "partition main has too few nodes that are up"),
        ("-n1 -c8 -p main", "partition main has no nodes that are up with so many CPUs"),
        ("-n1 --mem=64G -p main", "partition main has no nodes that are up with so much memory"),
        ("-n1 --gres=gpu:1 -p main", "partition main has no nodes that are up with gpu:1"),
        ("-n1 -C ve -p main", "partition main has no nodes that are up with the features ve"),
        ("-n1 -t 60 -p small", "partition small allows 30 minutes"),
    ],
)
def test_why_it_would_never_start(stand: WhereStand, words: str, why: str) -> None:
    stand.go(5)
    (row,) = stand.where(words)
    assert not row["feasible"]
    assert row["why_not"] == why
    assert (row["p50"], row["options"]) == (None, [])


@pytest.mark.parametrize(("words", "nodes"), [("--gpus=3", 2), ("-n3 --gpus-per-task=1", 2), ("-N1 --gpus=2", 1)])
def test_gpus_come_from_as_many_nodes_as_have_them(tmp_path: Path, words: str, nodes: int) -> None:
    stand = WhereStand(tmp_path, gpus=2)
    stand.go(5)
    (row,) = stand.where(f"{words} -p main")
    assert (row["feasible"], row["nodes"]) == (True, nodes)
    (row,) = stand.where("--gpus=5 -p main")
    assert row["why_not"] == "partition main has no nodes that are up with gpu:2", "of three nodes, two have any"
    stand.service.close()


def test_groups_accounts_and_limits_keep_jobs_out(stand: WhereStand) -> None:
    stand.slurm.partitions["small"] = replace(
        stand.slurm.partitions["small"], allow_groups=frozenset({"root"}), max_time=inf
    )
    stand.slurm.partitions["main"] = replace(stand.slurm.partitions["main"], deny_accounts=frozenset({"bio"}))
    mine = Association("bio", "alice", limits=UsageLimits(job_wall=3600.0))
    limits = SiteLimits(frozenset({"associations", "limits"}), {("bio", "alice", ""): mine}, {"normal": Qos("normal")})
    stand.slurm.set_limits(limits)
    stand.go(5)
    preemptible = "--comment=omfs:method=requeue"
    refused = {row["partition"]: row["why_not"] for row in stand.where("-n1 -t30", usual=preemptible)}
    assert refused["main"] == "partition main denies account bio", "the only account of alice"
    assert refused["small"] == "partition small is for the groups root"
    root = {row["partition"]: row["why_not"] for row in stand.where("-n1 -t30", ROOT, preemptible)}
    assert root["small"] == "", "root may go everywhere, and no account is known"
    (row,) = stand.where("-n1 -t120 -p urgent")
    assert row["why_not"] == "user alice in account bio allows a job 60 minutes"
    (row,) = stand.where("-n1 -t30 -p urgent -A physics")
    assert "no association with account physics" in row["why_not"]


def test_a_non_preemptible_job_needs_an_entitlement(stand: WhereStand) -> None:
    stand.go(5)
    (row,) = stand.where("-n12 -p main", usual="-A bio")
    assert row["why_not"] == "it is non-preemptible, and account bio is entitled to 8 CPUs"
    (row,) = stand.where("-n1 -p main", usual="")
    assert row["why_not"].startswith("it is non-preemptible, and its account, which is not known (--account), is")
    assert stand.where("-n8 -p main", usual="-A bio")[0]["feasible"]


def test_a_number_of_nodes_that_changes_the_request_is_tried(stand: WhereStand) -> None:
    for _ in range(3):
        stand.put("bob", 900)
    stand.go(10)
    rows = stand.where("-N1-3 --exclusive -p main -t10")
    assert {row["nodes"] for row in rows} == {1, 2, 3}
    assert rows[0]["options"] == ["-N", "1"]
    assert waits(rows[0], stand) == 0 < waits(rows[1], stand)
    assert len(stand.where("-n4 -N1-3 -p main -t10")) == 1, "the same CPUs on whatever nodes"


def test_the_earliest_of_all_clusters_comes_first(stand: WhereStand) -> None:
    for _ in range(5):
        stand.put("bob", 900)
    stand.go(10)
    stand.beside({"far": distant(0), "busy": distant(5 * 86400.0), "dead": "it does not answer: timeout"})
    rows = stand.where("-n4 -t20")
    assert [row["cluster"] for row in rows] == ["far", "here", "here", "busy", "dead"]
    assert rows[0]["options"] == ["-M", "far", "-p", "far"]
    assert rows[-1]["why_not"] == "it does not answer: timeout"
    only = stand.where("-n4 -t20 -M busy,here -p main")
    assert [(row["cluster"], row["why_not"]) for row in only] == [("here", ""), ("busy", "it has no partition main")]
    assert len(stand.where("-n4 -t20 -M all")) == 5
    with pytest.raises(ConfigError, match="--clusters = 'moon': must be among here, far, busy, dead"):
        stand.where("-n4 -M moon")


def test_a_cluster_with_a_slurm_conf_of_its_own_is_not_sent_to_by_name(stand: WhereStand) -> None:
    stand.go(5)
    stand.beside({"far": distant(0)}, Path("/etc/far.conf"))
    rows = {row["cluster"]: (row["options"], row["conf"]) for row in stand.where("-n4 -t20") if row["feasible"]}
    assert rows["far"] == (["-p", "far"], "/etc/far.conf")
    assert rows["here"][1] == ""
    assert "-M" not in rows["here"][0]


def test_what_no_estimate_takes_into_account_is_named(stand: WhereStand) -> None:
    stand.go(5)
    words = [("job.sh, line 2", word) for word in ("--mem=1G", "-L", "fluent:1", "--begin=now", "--omfs-bound=2")]
    view = stand.service.answers.where(ALICE, words)
    assert view["not_seen"] == ["memory", "licenses", "--begin", "--omfs-bound"]
    assert view["p90_held"] is None
    with pytest.raises(ConfigError, match=r"job\.sh, line 3: --time = 'x'"):
        stand.service.answers.where(ALICE, [("job.sh, line 3", "--time=x")])


def test_partitions_that_are_not_tried_are_named(stand: WhereStand) -> None:
    for number in range(40):
        stand.slurm.partitions[f"p{number}"] = replace(stand.slurm.partitions["small"], name=f"p{number}")
    stand.go(5)
    named = ",".join(f"p{number}" for number in range(31))
    words = [("the command line", word) for word in ("-n1", f"-p{named}")]
    view = stand.service.answers.where(ALICE, words)
    assert len(view["rows"]) == 30
    assert view["not_seen"] == ["1 more partitions of fake"]
    assert stand.service.answers.where(ALICE, words[:1])["not_seen"] == ["13 more partitions of fake"]


def test_groups_are_looked_up_once_for_a_request(stand: WhereStand, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("main", "small"):
        stand.slurm.partitions[name] = replace(stand.slurm.partitions[name], allow_groups=frozenset({"lab"}))
    asked: list[str] = []
    monkeypatch.setattr(callers, "_group_id", asked.append)
    monkeypatch.setattr(callers, "_groups_of", lambda peer: asked.append("own") or {peer.gid})
    stand.go(5)
    assert {row["why_not"].partition(" ")[2] for row in stand.where("-N1-3 --exclusive")} == {
        "main is for the groups lab",
        "small is for the groups lab",
    }
    assert sorted(asked) == ["lab", "own"]


def test_words_are_taken_apart_in_turn(stand: WhereStand) -> None:
    stand.go(5)
    slept: list[float] = []
    core = SharedCore(lambda: 0.0, slept.append)
    stand.elsewhere = StartsElsewhere(cast(OtherClusters, Elsewhere({})), core)
    with pytest.raises(ConfigError, match="--time = 'x'"):
        stand.where("--time=x")
    assert len(slept) == 1, "a turn came before the error was found"
    assert stand.where("-n4")
    assert len(slept) == 3
    with core.request(ALICE.uid), pytest.raises(ControlError, match="another such request of yours"):
        stand.where("-n4")


def test_before_slurm_has_answered_there_is_none(stand: WhereStand) -> None:
    with pytest.raises(ControlError, match="has not answered yet"):
        stand.where("-n4")


class _Sacctmgr:
    """Answers as Slurm's commands do on two clusters; ``asked``: with which variables."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __call__(self, arguments: Any, **options: Any) -> CommandOutput:
        self.asked.append((arguments[0], (options.get("variables") or {}).get("SLURM_CLUSTERS", "")))
        if arguments[0] == "sacctmgr":
            return CommandOutput("here|10.0.0.1\nfar|10.0.0.2\nnever|\n", "", 0)
        raise GatewayError("scontrol show config: no answer from Slurm within 1 s")


def test_clusters_of_the_same_slurmdbd_are_found_and_asked_seldom(stand: WhereStand) -> None:
    stand.go(5)
    settings = stand.gateway.settings()
    values = {**settings.values, "ClusterName": "here", "AccountingStorageType": "accounting_storage/slurmdbd"}
    stand.gateway.settings = lambda: settings._replace(values=values)
    runner = _Sacctmgr()
    clusters = OtherClusters(lambda: stand.config, stand.gateway, lambda: stand.now, runner)
    assert clusters.names() == ("here", {"far": None})
    assert clusters.snapshot("far") == "it does not answer: scontrol show config: no answer from Slurm within 1 s"
    assert clusters.snapshot("far") == clusters.snapshot("far")
    assert runner.asked == [("sacctmgr", ""), ("scontrol", "far")]
    stand.now += 20
    clusters.snapshot("far")
    assert runner.asked[2:] == [("scontrol", "far")]
