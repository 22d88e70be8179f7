"""The parsers on text as Slurm 22.05 printed it, and on text that nobody should take for true."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Allocation, Hold, JobState
from omfs_daemon.cluster.units import Unit
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm import releases
from omfs_daemon.slurm.commands import parse_allocations as allocations
from omfs_daemon.slurm.commands import parse_cluster, parse_dependencies, values
from omfs_daemon.slurm.commands import parse_jobs as parse
from omfs_daemon.slurm.commands.gres_nodes import NodeSize
from omfs_daemon.slurm.commands.het_parts import part_ids
from omfs_daemon.slurm.commands.job_rows import JobRows
from omfs_daemon.slurm.commands.refusals import Refusals, parse_refusals
from omfs_daemon.slurm.commands.run_command import CommandOutput
from omfs_daemon.slurm.commands.site_sizes import SiteSizes
from omfs_daemon.slurm.commands.squeue_fields import JobRow, first_part, job_format, job_state
from omfs_daemon.slurm.gateway import AccountRow, LicenseRow, OrderRefusal

MB = 1024**2
SEPARATOR = "<5ec2e7>"

ROW = JobRow(
    job_id="2",
    array_job_id="2",
    array_task_id="N/A",
    het_job_id="N/A",
    state="RUNNING",
    reason="None",
    partition="main",
    user="nobody",
    uid="65534",
    account="(null)",
    qos="(null)",
    tres="cpu=6,mem=1200M,node=2,billing=6",
    cpus="6",
    tasks="6",
    min_cpus="1",
    nodes="2",
    max_nodes="2",
    min_memory="200M",
    tres_per_job="N/A",
    tres_per_node="N/A",
    tres_per_socket="N/A",
    tres_per_task="N/A",
    tasks_per_node="0",
    cpus_per_tres="N/A",
    over_subscribe="OK",
    features="(null)",
    licenses="(null)",
    required_nodes="",
    node_list="n[1-2]",
    priority="1",
    nice="0",
    submit="1795227992",
    eligible="1795227992",
    dependency="(null)",
    reservation="(null)",
    start="1795227993",
    time_used="0:02",
    time_limit="365-00:00:00",
    deadline="N/A",
    restarts="0",
    requeue="1",
    batch="1",
    name="wrap",
    comment="(null)",
    admin_comment="(null)",
)
WAITING = ROW._replace(
    state="PENDING", node_list="", start="1826763992", time_used="0:00", tres="cpu=6,mem=1200M,node=2"
)


SITE = SiteSizes()
# What has GPUs there, and CPUs that come with them.
GPU_SITE = SiteSizes(
    cpus_per_gpu=3,
    by_partition={"few": 2},
    node_sizes={
        "few": (NodeSize(16, (("gpu", 4),)),),
        "main": (NodeSize(16, (("gpu", 4),)), NodeSize(16, (("gpu", 8),))),
    },
)


def printed(*rows: JobRow) -> str:
    return "".join("".join(field + SEPARATOR for field in row) + "\n" for row in rows)


def job(row: JobRow, excluded: str = "", site: SiteSizes = SITE):
    return parse.job(row, excluded, site, ())


def rows_of(text: str, secret: str, release: releases.SlurmRelease) -> list[JobRow]:
    job_rows = JobRows()
    return job_rows.read(text.replace(secret, job_rows.secret), release)


class TestRows:
    @given(st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=4))
    def test_nothing_a_user_writes_makes_a_field_or_a_row(self, texts: list[tuple[str, str, str]]) -> None:
        rows = [
            ROW._replace(job_id=str(number), name=name, comment=comment, account=account)
            for number, (name, comment, account) in enumerate(texts)
        ]
        assert rows_of(printed(*rows), SEPARATOR, releases.OLDEST) == rows

    @pytest.mark.parametrize("text", ["x", printed(ROW)[:-40], printed(ROW) + "more", SEPARATOR])
    def test_a_part_of_a_row_is_an_error(self, text: str) -> None:
        with pytest.raises(ParseError):
            rows_of(text, SEPARATOR, releases.OLDEST)

    def test_the_format_asks_for_every_field(self) -> None:
        assert len(job_format(SEPARATOR, releases.OLDEST).split(",")) == len(ROW)

    def test_an_array_that_is_listed_task_by_task_is_one_job(self) -> None:
        rest = [WAITING._replace(array_task_id=task) for task in ("1", "3", "4", "5")]
        held = WAITING._replace(job_id="4", array_task_id="2", priority="0")
        text = printed(*rest, held)
        assert rows_of(text, SEPARATOR, releases.TESTED[1]) == [
            WAITING._replace(array_task_id="1,3-5"),
            held,
        ]

    def test_two_lines_with_one_id_and_no_tasks_are_an_error(self) -> None:
        with pytest.raises(ParseError):
            rows_of(printed(ROW, ROW), SEPARATOR, releases.OLDEST)

    def test_excluded_nodes_by_job(self) -> None:
        text = f"7{SEPARATOR}n[2-3]{SEPARATOR}\n8{SEPARATOR}{SEPARATOR}\n"
        assert parse.excluded(text, SEPARATOR) == {"7": "n[2-3]", "8": ""}


class TestJob:
    def test_a_running_job(self) -> None:
        found = job(ROW)
        assert (found.id, found.ref, found.state, found.uid) == (2, "2", JobState.RUNNING, 65534)
        assert (found.submit, found.start, found.run_time, found.time_limit) == (
            1795227992.0,
            1795227993.0,
            2.0,
            365 * 86400.0,
        )
        assert (found.account, found.qos, found.comment, found.reason, found.array_id) == ("", "", "", "", None)

    def test_a_waiting_jobs_start_is_only_a_guess(self) -> None:
        assert job(WAITING).start is None

    @pytest.mark.parametrize(
        ("task", "ref", "tasks"),
        [("1", "2_1", (1,)), ("5-7,9%2", "2_[5-7,9]", (5, 6, 7, 9)), ("0-8:4", "2_[0,4,8]", (0, 4, 8))],
    )
    def test_an_array_is_never_named_by_its_bare_id(self, task: str, ref: str, tasks: tuple[int, ...]) -> None:
        found = job(WAITING._replace(array_task_id=task))
        assert (found.ref, found.task_ids, found.array_id, found.tasks) == (ref, tasks, 2, len(tasks))

    @pytest.mark.parametrize(
        ("priority", "reason", "hold"),
        [
            ("1", "Resources", Hold.NONE),
            ("0", "JobHeldUser", Hold.USER),
            ("0", "JobArrayTaskLimit,JobHeldUser", Hold.USER),
            ("0", "JobHeldAdmin", Hold.ADMIN),
            ("0", "job requeued in held state", Hold.USER),
        ],
    )
    def test_who_holds(self, priority: str, reason: str, hold: Hold) -> None:
        assert job(WAITING._replace(priority=priority, reason=reason)).hold is hold
        assert job(ROW._replace(priority=priority, reason=reason)).hold is Hold.NONE

    @pytest.mark.parametrize(
        ("dependency", "eligible", "expected"),
        [
            ("(null)", "1795231592", 1795231592.0),
            ("", "N/A", None),
            ("afterok:7(unfulfilled)", "1795231592", inf),
            ("singleton(unfulfilled),afterok:7(unfulfilled)", "N/A", inf),
            ("afterok:7_*(failed)", "N/A", inf),
        ],
    )
    def test_what_a_held_job_waits_for_besides(self, dependency: str, eligible: str, expected: float | None) -> None:
        row = WAITING._replace(priority="0", reason="JobHeldUser", dependency=dependency, eligible=eligible)
        assert job(row).eligible == expected
        assert job(ROW._replace(dependency=dependency)).eligible == 1795227992.0

    def test_a_singleton_stays_one_while_slurm_does_not_look_at_it(self) -> None:
        held = WAITING._replace(priority="0", dependency="singleton(unfulfilled),afterok:9(unfulfilled)")
        (row,) = parse_dependencies.dependencies([held])
        assert (job(row).singleton, job(row).eligible) == (True, 1795227992.0)

    @pytest.mark.parametrize(
        ("dependency", "kept"),
        [
            ("afterok:7(unfulfilled)", True),
            ("afterok:9(unfulfilled)", False),
            ("afterok:9(unfulfilled),afterany:7(unfulfilled)", True),
            ("afterok:9(unfulfilled)?afterany:7(unfulfilled)", False),
            ("afterok:6(unfulfilled)?afterany:7(unfulfilled)", True),
            ("after:6+5(unfulfilled)", True),
            ("after:7(unfulfilled)", False),
            ("afterany:4_*(unfulfilled)", True),
            ("afterany:4_3(unfulfilled)", True),
            ("afterany:4_4(unfulfilled)", False),
            ("afterok:9(failed)", True),
            ("afterok:9(failed),afterany:9(unfulfilled)", True),
            ("afterok:9(failed)?afterany:9(unfulfilled)", False),
        ],
    )
    def test_a_dependency_that_slurm_does_not_evaluate_counts_while_what_it_names_lives(
        self, dependency: str, kept: bool
    ) -> None:
        others = [
            ROW._replace(job_id="7", array_job_id="7"),
            WAITING._replace(job_id="6", array_job_id="6"),
            WAITING._replace(job_id="4", array_job_id="4", array_task_id="2-3"),
            ROW._replace(job_id="9", array_job_id="9", state="COMPLETED"),
        ]
        held = WAITING._replace(priority="0", dependency=dependency)
        assert parse_dependencies.dependencies([held, *others])[0].dependency == (dependency if kept else "")
        assert parse_dependencies.dependencies([held], others)[0].dependency == (dependency if kept else "")
        released = held._replace(priority="1", reason="None")
        assert parse_dependencies.dependencies([released, *others])[0].dependency == (dependency if kept else "")
        looked_at = released._replace(reason="Dependency")
        assert parse_dependencies.dependencies([looked_at, *others])[0] == looked_at

    @pytest.mark.parametrize(
        ("tasks", "kept"), [("2", True), ("5", False), ("2-3", True), ("2-5", False), ("N/A", True)]
    )
    def test_a_task_waits_for_the_task_of_its_number(self, tasks: str, kept: bool) -> None:
        others = [
            WAITING._replace(job_id="4", array_job_id="4", array_task_id="3"),
            ROW._replace(job_id="6", array_job_id="4", array_task_id="2"),
            ROW._replace(job_id="8", array_job_id="4", array_task_id="5", state="COMPLETED"),
        ]
        held = WAITING._replace(priority="0", array_task_id=tasks, dependency="aftercorr:4_*(unfulfilled)")
        assert parse_dependencies.dependencies([held, *others])[0].dependency == (held.dependency if kept else "")

    def test_every_state_of_the_manual(self) -> None:
        states = """BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING
            PREEMPTED RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED RESIZING REVOKED SIGNALING SPECIAL_EXIT
            STAGE_OUT STOPPED SUSPENDED TIMEOUT"""
        assert {job_state(word) for word in states.split()} == set(JobState)

    @pytest.mark.parametrize(
        "change",
        [
            {"state": "NEWFANGLED"},
            {"uid": "nobody"},
            {"time_limit": "soon"},
            {"time_limit": "9999999999-00:00:00"},
            {"min_memory": "lots"},
            {"min_memory": "1?"},
            {"tres": "cpu=3,mem=3?,node=3"},
            {"submit": "2026-11-21T02:26:32"},
            {"array_task_id": "1-x"},
            {"tres_per_node": "gres:a:b:c:d"},
            {"required_nodes": "n[1-"},
            {"cpus": "4294967295"},
            {"nodes": "-1"},
            {"priority": "9" * 5000},
            {"restarts": "\N{SUPERSCRIPT TWO}"},
        ],
    )
    def test_what_is_not_understood_sets_that_job_aside(self, change: dict[str, str]) -> None:
        found = job(WAITING._replace(**change))
        assert "cannot be read" in found.set_aside
        assert (found.id, found.user, found.name) == (2, "nobody", "wrap")

    @given(st.sampled_from(sorted(set(JobRow._fields) - {"job_id"})), st.text())
    def test_no_field_keeps_the_other_jobs_from_being_seen(self, field: str, text: str) -> None:
        rows = [row._replace(**{field: text}) for row in (ROW, WAITING)]
        for row in parse_dependencies.dependencies(rows):
            parse.job(row, "", SITE, allocations.simple(row, True))

    def test_a_row_without_an_id_is_an_error(self) -> None:
        with pytest.raises(ParseError):
            job(WAITING._replace(job_id="1_0"))

    def test_excluded_nodes_that_cannot_be_read(self) -> None:
        assert job(WAITING, excluded="\0unreadable").set_aside

    def test_kinds_of_jobs_that_are_not_supported(self) -> None:
        assert "federation" in job(ROW._replace(job_id=str(1 << 26))).set_aside
        assert job(ROW).set_aside == job(ROW._replace(het_job_id="0")).set_aside == ""
        assert job(ROW).ref == ROW.job_id

    def test_parts_of_heterogeneous_jobs(self) -> None:
        first, second = ROW._replace(job_id="169", het_job_id="169"), ROW._replace(job_id="170", het_job_id="169")
        assert [job(row).ref for row in (first, second)] == ["169+0", "169+1"], "each alone"
        assert [first_part(row) for row in (first, second, ROW, ROW._replace(het_job_id="0"))] == [
            169,
            169,
            None,
            None,
        ]

    def test_the_ids_of_all_parts(self) -> None:
        printed = "N/A|N/A|\n169|169-171|\n169|169-171|\n60000000|60000000,60000002-60000003|\n"
        assert part_ids(printed) == {169: (169, 170, 171), 60000000: (60000000, 60000002, 60000003)}
        with pytest.raises(ParseError):
            part_ids("169|169-x|")

    def test_of_a_job_with_nodes_the_rest_counts_as_it_can_be_read(self) -> None:
        (whole,) = (parse.job(ROW._replace(cpus="?", node_list="n3"), "", SITE, None),)
        assert whole.allocations == (Allocation("n3", 0, 0),)
        assert (whole.state, whole.request.cpus) == (JobState.RUNNING, 0)
        assert allocations.simple(ROW._replace(cpus="?"), True) is None
        assert job(ROW._replace(state="NEWFANGLED")).state is JobState.RUNNING


class TestRequest:
    @pytest.mark.parametrize(
        ("cpus", "tres", "least", "per_cpu", "per_node"),
        [
            ("6", "cpu=6,mem=1200M,node=2", "200M", 200, 0),
            ("6", "cpu=6,mem=1000M,node=2", "500M", 0, 500),
            ("4", "cpu=4,mem=8G,node=1", "2G", 2048, 0),
            ("1", "cpu=1,mem=8000M,node=1", "0", 0, 8000),
            ("2", "cpu=2,mem=3001M,node=2", "700M", 0, 1500.5),
        ],
    )
    def test_memory(self, cpus: str, tres: str, least: str, per_cpu: float, per_node: float) -> None:
        request = job(WAITING._replace(cpus=cpus, tres=tres, min_memory=least)).request
        assert (request.memory_per_cpu, request.memory_per_node) == (per_cpu * MB, per_node * MB)

    def test_memory_that_slurm_does_not_allocate_is_none(self) -> None:
        request = job(ROW, site=SiteSizes(memory_counts=False)).request
        assert (request.memory_per_cpu, request.memory_per_node) == (0, 0)

    @pytest.mark.parametrize(
        ("tres_nodes", "shown", "most", "expected"),
        [("2", "2", "2", (2, 2)), ("1", "1", "3", (1, 3)), ("1", "2", "2", (1, 0)), ("1", "2", "3", (1, 3))],
    )
    def test_nodes(self, tres_nodes: str, shown: str, most: str, expected: tuple[int, int]) -> None:
        row = WAITING._replace(tres=f"cpu=6,mem=1200M,node={tres_nodes}", nodes=shown, max_nodes=most)
        request = job(row).request
        assert (request.nodes, request.max_nodes) == expected

    @pytest.mark.parametrize(
        ("field", "text", "expected"),
        [
            ("tres_per_node", "gres:ve:2", {"ve": 2}),
            ("tres_per_node", "gres:gpu:a100:2,gres:ve:1", {"gpu": 2, "gpu:a100": 2, "ve": 1}),
            ("tres_per_node", "gres/gpu:a100:2", {"gpu": 2, "gpu:a100": 2}),
            ("tres_per_node", "gres:gpu", {"gpu": 1}),
            ("tres_per_node", "gres:ve:1K", {"ve": 1024}),
            ("tres_per_node", "gres:ve:1kib,gres:gpu:1kb", {"ve": 1024, "gpu": 1000}),
            ("tres_per_node", "gres:gpu:a100: +4", {"gpu": 4, "gpu:a100": 4}),
            ("tres_per_node", f"gres:gpu:{'0' * 900}2", {"gpu": 2}),
            ("tres_per_node", "gres:gpu:-1", {"gpu": 2**31 - 1}),
            ("tres_per_node", "gres:gpu:+0k,gres:ve:-0,gres:a:b:0", {}),
            ("tres_per_node", "gres:gpu:k80:2", {"gpu": 2, "gpu:k80": 2}),
            ("tres_per_node", "gres:gpu:v100", {"gpu": 1, "gpu:v100": 1}),
            ("tres_per_node", "gres:ve:18446744073709551610", {"ve": 2**31 - 1}),
            ("tres_per_job", "gres:gpu:3", {"gpu": 2}),
            ("tres_per_task", "gres:gpu:1", {"gpu": 3}),
            # What Slurm takes from users and shows again (22.05).
            ("tres_per_node", "gres:gpu:1,gres:", {"gpu": 1}),
            ("tres_per_task", "cpu=2", {}),  # --cpus-per-task since 23.11
            ("tres_per_task", "cpu:2,gres/gpu:1", {"gpu": 3}),
            ("tres_per_task", "cpu=2,gres/gpu:a100=1,license/fluent=1", {"gpu": 3, "gpu:a100": 3}),
            ("tres_per_node", "gres:,gres:gpu:1", {"gpu": 1}),
            ("tres_per_socket", "gpu:1,", {"gpu": 1}),
            ("tres_per_job", "gres:gres:gpu:1", {"gpu": 1}),
            ("tres_per_node", "gres:,", {}),
        ],
    )
    def test_generic_resources_per_node(self, field: str, text: str, expected: dict[str, int]) -> None:
        assert dict(job(WAITING._replace(**{field: text})).request.gres) == expected

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"tres_per_node": "gres:fpga:1", "tres_per_job": "gres:gpu:6"}, {"fpga": 1, "gpu": 3}),
            ({"tres_per_node": "gres:gpu:2", "tres_per_job": "gres:gpu:9"}, {"gpu": 2}),
            ({"tres_per_node": "gres:gpu:0", "tres_per_job": "gres:gpu:6"}, {"gpu": 3}),
            ({"tres_per_socket": "gres:fpga:1", "tres_per_task": "gres:gpu:1"}, {"fpga": 1, "gpu": 3}),
            ({"tres_per_socket": "gres:gpu:2", "tres_per_job": "gres:gpu:8"}, {"gpu": 4}),
            (
                {"tres_per_node": "gres:gpu:v100:1", "tres_per_job": "gres:gpu:a100:8"},
                {"gpu": 5, "gpu:v100": 1, "gpu:a100": 4},
            ),
        ],
    )
    def test_generic_resources_asked_for_in_several_ways(
        self, fields: dict[str, str], expected: dict[str, int]
    ) -> None:
        assert dict(job(WAITING._replace(**fields)).request.gres) == expected

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({}, (1, 1, 1)),
            (
                {"tres_per_node": "gres:fpga:1", "tres_per_job": "gres:gpu:8", "cpus_per_tres": "gres:gpu:8"},
                (64, 1, 64),
            ),
            ({"nodes": "2", "max_nodes": "4", "tasks": "2", "tres": "cpu=1,mem=100M,node=2"}, (2, 2, 1)),  # -N2-4
            ({"min_cpus": "2"}, (2, 1, 2)),  # --mincpus=2
            ({"min_cpus": "2", "nodes": "2", "max_nodes": "2", "cpus": "2", "tres": "cpu=2,node=2"}, (4, 2, 2)),
            ({"cpus": "8", "tasks": "4", "min_cpus": "2", "nodes": "2", "max_nodes": "2"}, (8, 1, 2)),  # -n4 -c2
            (
                {"cpus": "8", "tasks": "4", "min_cpus": "1", "nodes": "2", "max_nodes": "2", "tres_per_task": "cpu=2"},
                (8, 1, 2),
            ),
            ({"cpus": "4", "tasks": "4", "min_cpus": "2", "tasks_per_node": "2", "nodes": "2"}, (4, 2, 2)),
            ({"tres_per_job": "gres:gpu:2", "cpus_per_tres": "gres:gpu:2"}, (4, 1, 4)),
            ({"tres_per_node": "gres:gpu:2", "cpus_per_tres": "gres:gpu:1", "nodes": "2", "cpus": "2"}, (2, 1, 2)),
            ({"tres_per_task": "gres:gpu:1", "cpus_per_tres": "gres:gpu:2", "tasks": "2", "cpus": "2"}, (4, 1, 4)),
            ({"required_nodes": "n[1-2]"}, (2, 2, 1)),  # of scontrol update NodeList=
            ({"required_nodes": "n[1-2]", "cpus": "2", "min_cpus": "2"}, (4, 2, 2)),
            ({"required_nodes": "n[1-2]", "cpus": "3", "tasks": "3"}, (3, 2, 1)),
            ({"features": "fast*2"}, (2, 2, 1)),
            ({"features": "[fast*2&slow*1]", "cpus": "4", "tasks": "4"}, (4, 3, 1)),
            ({"features": "[fast*2|slow*3]", "max_nodes": "2"}, (3, 3, 1)),
        ],
    )
    def test_cpus_that_slurm_counts_only_at_the_start(
        self, fields: dict[str, str], expected: tuple[int, int, int]
    ) -> None:
        """(CPUs, nodes, CPUs on each), as 22.05 shows held jobs; what it allocated was (at least) that."""
        one = WAITING._replace(cpus="1", tasks="1", nodes="1", max_nodes="1", min_memory="100M", tres="cpu=1,node=1")
        request = job(one._replace(**fields)).request
        assert (request.cpus, request.nodes, request.min_cpus_per_node) == expected

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"tres_per_job": "gres:gpu:6"}, (12, 2, 6, 3)),
            ({"tres_per_job": "gres:gpu:6", "max_nodes": "1"}, (12, 2, 6, 3)),  # as squeue shows an open number
            ({"tres_per_job": "gres:gpu:14", "max_nodes": "3"}, (30, 3, 10, 5)),  # Slurm starts it nowhere
            ({"tres_per_job": "gres:gpu:6", "max_nodes": "0", "partition": "main"}, (18, 2, 9, 3)),
            ({"tres_per_job": "gres:gpu:6", "max_nodes": "0", "partition": "few,main"}, (18, 2, 9, 3)),
            ({"tres_per_job": "gres:gpu:6", "cpus_per_tres": "gres:gpu:2", "partition": "main"}, (12, 1, 12, 6)),
            ({"tres_per_job": "gres:gpu:6", "cpus_per_tres": "gres:gpu:8", "partition": "main"}, (48, 3, 16, 2)),
            ({"tres_per_job": "gres:gpu:6", "min_cpus": "2", "cpus": "2"}, (4, 2, 2, 3)),  # -c2: no default
            ({"tres_per_task": "gres:gpu:1", "tasks": "5", "cpus": "5"}, (12, 2, 6, 3)),
            ({"tres_per_task": "gres:gpu:3", "tasks": "3", "cpus": "3"}, (18, 3, 6, 3)),
            ({"tres_per_task": "gres:gpu:1,cpu=8", "tasks": "4", "cpus": "32"}, (32, 2, 8, 2)),
            ({"tres_per_task": "gres:gpu:0", "tasks": "4", "cpus": "4"}, (4, 1, 1, 0)),
            ({"tres_per_node": "gres:gpu:2"}, (4, 1, 4, 2)),
            ({"tres_per_node": "gres:gpu:2", "partition": "other"}, (6, 1, 6, 2)),
            ({"tres_per_job": "gres:gpu:99", "partition": "other"}, (297, 1, 297, 99)),  # no node has GPUs there
            ({"tres_per_job": "gres:fpga:2"}, (1, 1, 1, 0)),
            (
                {"tres_per_job": "gres:gpu:2147483647", "cpus_per_tres": "gres:gpu:2147483647"},
                (2147483647, 1, 2147483647, 2147483647),
            ),
        ],
    )
    def test_gpus_take_more_nodes_and_cpus_than_slurm_shows(
        self, fields: dict[str, str], expected: tuple[int, int, int, int]
    ) -> None:
        """(CPUs, nodes, CPUs and GPUs on each)."""
        one = {"cpus": "1", "tasks": "1", "nodes": "1", "max_nodes": "0", "min_memory": "100M", "partition": "few"}
        request = job(WAITING._replace(tres="cpu=1,node=1", **{**one, **fields}), site=GPU_SITE).request
        gpus = dict(request.gres).get("gpu", 0)
        assert (request.cpus, request.nodes, request.min_cpus_per_node, gpus) == expected

    def test_what_a_job_with_gpus_has_is_what_it_was_given(self) -> None:
        request = job(ROW._replace(tres_per_job="gres:gpu:9", cpus_per_tres="N/A"), site=GPU_SITE).request
        assert (request.cpus, request.nodes, dict(request.gres)) == (6, 2, {"gpu": 5})

    def test_a_running_job_has_what_it_was_allocated(self) -> None:
        assert job(ROW._replace(min_cpus="4")).request.cpus == 6

    def test_places(self) -> None:
        row = WAITING._replace(
            over_subscribe="NO", partition="main,urgent", required_nodes="n[1,3]", features="fast&ve"
        )
        request = job(row, excluded="n[7-8]").request
        assert request.exclusive
        assert request.partitions == ("main", "urgent")
        assert (request.required_nodes, request.excluded_nodes) == ({"n1", "n3"}, {"n7", "n8"})
        assert request.features == "fast&ve"


DETAILS = (
    "JobId=2 JobName=wrap UserId=nobody(65534) GroupId=nogroup(65534) MCS_label=N/A Priority=1 Nice=0 Account=(null) "
    "QOS=(null) JobState=RUNNING NodeList=n[1-2] TRES=cpu=6 JOB_GRES=(null)   Nodes=n1 CPU_IDs=2-3 Mem=400 GRES= "
    "  Nodes=n2 CPU_IDs=0-3 Mem=800 GRES= MinCPUsNode=1 MinMemoryCPU=200M Comment=x \n"
)


def exact(printed: str, row: JobRow, memory_counts: bool) -> tuple[Allocation, ...] | None:
    return allocations.exact(allocations.Details.of(printed), row, memory_counts)


def job_units(printed: str, row: JobRow) -> frozenset[Unit] | None:
    return allocations.job_units(allocations.Details.of(printed), row)


class TestShares:
    expected = (Allocation("n1", 2, 400 * MB), Allocation("n2", 4, 800 * MB))

    def test_exact(self) -> None:
        assert exact(DETAILS, ROW, memory_counts=True) == self.expected

    def test_on_nodes_with_equal_parts(self) -> None:
        text = DETAILS.replace(
            "Nodes=n1 CPU_IDs=2-3 Mem=400 GRES=   Nodes=n2 CPU_IDs=0-3", "Nodes=n[1-2] CPU_IDs=0,2-3"
        )
        assert exact(text, ROW, True) == (Allocation("n1", 3, 800 * MB), Allocation("n2", 3, 800 * MB))

    @pytest.mark.parametrize("field", ["name", "account"])
    def test_a_forged_field_before_the_true_ones(self, field: str) -> None:
        places = "  Nodes=n1 CPU_IDs=0-3 Mem=1 GRES=   Nodes=n2 CPU_IDs=0-1 Mem=2 "
        forged = f"x UserId=a Account=b QOS=c JOB_GRES=(null) {places}"
        text = (
            DETAILS.replace("JobName=wrap", f"JobName={forged}")
            if field == "name"
            else DETAILS.replace("Account=(null)", f"Account={forged}")
        )
        assert exact(text, ROW._replace(**{field: forged}), True) == self.expected

    def test_cpus_and_devices_one_by_one(self) -> None:
        assert job_units(DETAILS, ROW) == {
            *(Unit("n1", "cpu", number) for number in (2, 3)),
            *(Unit("n2", "cpu", number) for number in range(4)),
        }
        devices = "GRES=gpu:a100:2(IDX:0,3),ve(CNT:1),shard:1(1/4)   Nodes=n2"
        found = job_units(DETAILS.replace("GRES=   Nodes=n2", devices), ROW)
        assert found is not None
        assert {unit for unit in found if unit.kind != "cpu"} == {Unit("n1", "gpu", 0), Unit("n1", "gpu", 3)}
        assert job_units(DETAILS, ROW._replace(node_list="n1")) is None
        assert job_units(DETAILS.replace("CPU_IDs=2-3", "CPU_IDs=x"), ROW) is None
        assert job_units("", ROW) is None

    def test_a_forged_record_of_another_job(self) -> None:
        forged = DETAILS.replace("CPU_IDs=2-3 Mem=400", "CPU_IDs=0-3 Mem=1")
        assert exact(f"JobId=9 JobName=a Comment=\n{forged} QOS=\n{DETAILS}", ROW, True) is None

    def test_a_job_that_changed_meanwhile(self) -> None:
        assert exact(DETAILS, ROW._replace(cpus="5"), True) is None
        assert exact(DETAILS, ROW._replace(node_list="n[1-3]"), True) is None
        assert exact("", ROW, True) is None

    def test_on_one_node(self) -> None:
        row = ROW._replace(node_list="n3")
        assert allocations.simple(row, memory_counts=True) == (Allocation("n3", 6, 1200 * MB),)
        assert allocations.simple(row, memory_counts=False) == (Allocation("n3", 6, 0),)


NODE = (
    "NodeName=n2 Arch=x86_64 CoresPerSocket=4  CPUAlloc=3 CPUEfctv=4 CPUTot=4 CPULoad=0.11 AvailableFeatures=a "
    "ActiveFeatures=fast,ve Gres=gpu:a100:2(S:0),gpu:v100:1,ve:1 NodeAddr=127.0.0.1 OS=Linux 6.18 #1 SMP  "
    "RealMemory=8000 AllocMem=600 State={state} Weight=1 Partitions=main,urgent  Reason=State=IDLE CPUTot=900 [root]\n"
)


def test_k29_a_job_that_has_nodes_can_be_a_victim_whatever_it_asks_for() -> None:
    has = (Allocation("n3", 4, 0), Allocation("n4", 2, 0))
    odd = ROW._replace(tres_per_node="gres:a:b:c:d")
    found = parse.job(odd, "", SITE, has)
    assert (found.set_aside, found.allocations) == ("", has)
    assert (found.request.cpus, found.request.nodes, found.request.partitions) == (6, 2, ("main",))
    assert job(odd._replace(state="PENDING", node_list="")).set_aside
    assert parse.job(odd._replace(cpus="?"), "", SITE, has).set_aside


def test_a_job_of_srun_is_no_batch_job() -> None:
    found = parse.job(ROW._replace(batch="0"), "", SITE, ())
    assert found.requeue and not found.batch, "Slurm shows Requeue=1 of it all the same"


class TestNodes:
    def test_a_node(self) -> None:
        (node,) = parse_cluster.parse_nodes(NODE.format(state="MIXED"))
        assert (node.name, node.cpus, node.cpus_taken, node.up) == ("n2", 4, 3, True)
        assert (node.memory, node.memory_taken) == (8000 * MB, 600 * MB)
        assert node.gres == (("gpu", 3), ("gpu:a100", 2), ("gpu:v100", 1), ("ve", 1))
        assert (node.features, node.partitions) == ({"fast", "ve"}, ("main", "urgent"))

    @pytest.mark.parametrize(
        ("state", "up"),
        [
            ("IDLE", True),
            ("IDLE+PLANNED", True),
            ("ALLOCATED+COMPLETING", True),
            ("MIXED+CLOUD", True),
            ("IDLE*", False),
            ("DOWN*+DRAIN", False),
            ("IDLE+DRAIN", False),
            ("MIXED+DRAIN", False),
            ("ALLOCATED+MAINTENANCE+RESERVED", False),
            ("IDLE+RESERVED", False),
            ("IDLE+CLOUD+POWERED_DOWN", False),
            ("IDLE~", False),
            ("IDLE+NOT_RESPONDING", False),
            ("FUTURE", False),
            ("IDLE+SOMETHING_NEW", False),
        ],
    )
    def test_up(self, state: str, up: bool) -> None:
        assert parse_cluster.parse_nodes(NODE.format(state=state))[0].up is up

    @pytest.mark.parametrize(
        ("state", "works"),
        [
            ("IDLE", True),
            ("MIXED+DRAIN", True),
            ("IDLE+DRAIN+POWER_DOWN", True),
            ("MIXED+DRAIN+REBOOT_REQUESTED", True),
            ("ALLOCATED+MAINTENANCE+RESERVED", True),
            ("DOWN+DRAIN+REBOOT_ISSUED", False),
            ("IDLE+POWERING_DOWN", False),
            ("DOWN+DRAIN", False),
            ("MIXED+COMPLETING+NOT_RESPONDING", False),
            ("MIXED*+DRAIN", False),
        ],
    )
    def test_works(self, state: str, works: bool) -> None:
        assert parse_cluster.parse_nodes(NODE.format(state=state))[0].works is works

    @pytest.mark.parametrize(
        ("state", "silent"),
        [("IDLE*", True), ("MIXED+NOT_RESPONDING", True), ("IDLE", False), ("MIXED*+DRAIN", False), ("DOWN*", False)],
    )
    def test_silent(self, state: str, silent: bool) -> None:
        assert parse_cluster.parse_nodes(NODE.format(state=state))[0].silent is silent

    @pytest.mark.parametrize(("cores", "expected"), [(4, 1), (2, 2), (1, 4), (8, 1)])
    def test_cpus_of_a_core(self, cores: int, expected: int) -> None:
        """Whatever ThreadsPerCore says: a site may count cores as CPUs."""
        text = NODE.format(state="IDLE").replace("CoresPerSocket=4", f"CoresPerSocket={cores}")
        assert parse_cluster.parse_nodes(text)[0].threads == expected

    @pytest.mark.parametrize("text", ["rubbish\n", "NodeName=n1 State=IDLE\n"])
    def test_what_is_not_understood_is_an_error(self, text: str) -> None:
        with pytest.raises(ParseError):
            parse_cluster.parse_nodes(text)


def test_partitions() -> None:
    text = (
        "PartitionName=main AllowGroups=ALL Nodes=n[1-2] PriorityTier=1 OverSubscribe=NO State=UP\n"
        "PartitionName=none AllowGroups=ALL Nodes=(null) PriorityTier=7 OverSubscribe=EXCLUSIVE State=DRAIN "
        "DefaultTime=00:30:00 MaxTime=UNLIMITED\n"
    )
    main, none = parse_cluster.parse_partitions(text)
    assert (main.nodes, main.up, main.exclusive, main.priority_tier) == ({"n1", "n2"}, True, False, 1)
    assert (none.nodes, none.up, none.exclusive, none.priority_tier) == (set(), True, True, 7)
    assert (main.default_time, none.default_time) == (inf, 1800.0)
    assert parse_cluster.parse_partitions("No partitions in the system\n") == []


def test_settings() -> None:
    text = (
        "Configuration data as of now\nAuthInfo                = cred_expire=5\nX = (null)\nSLURM_VERSION = 22.05.8\n"
    )
    found = parse_cluster.parse_settings(text)
    assert (found.version, found.values["AuthInfo"], found.values["X"]) == ("22.05.8", "cred_expire=5", "")
    with pytest.raises(ParseError):
        parse_cluster.parse_settings("nothing")


def test_accounts() -> None:
    text = "root||\nroot||root\nphysics|root|\ntheory|physics|\ntheory||alice\n"
    root, *others = parse_cluster.parse_accounts(text)
    assert root == AccountRow("root", ""), "jobs may run in it"
    assert others == [AccountRow("physics", ""), AccountRow("theory", "physics")]
    with pytest.raises(ParseError):
        parse_cluster.parse_accounts("physics|root\n")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:02", 2), ("1:02:03", 3723), ("2-00:00:01", 172801), ("UNLIMITED", inf), ("Partition_Limit", inf)],
)
def test_durations(text: str, seconds: float) -> None:
    assert values.duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "most"), [("3T", 3 * 1024**4), ("976562496", 976562496 * MB), ("18446744073709551615M", 2**50)]
)
def test_memory_is_no_more_than_a_node_could_have(text: str, most: int) -> None:
    assert values.memory(text) == min(most, 2**50)


class TestRefusals:
    refs = ("7", "12", "3_9", "3_[4-6]")

    def said(self, text: str) -> Refusals:
        return parse_refusals(self.refs, CommandOutput("", text, 1))

    def test_each_is_named(self) -> None:
        said = (
            "Invalid job id specified for job 12\n3_9: Invalid job id specified\n3_4-6: Job is pending execution\n"
            "slurm_suspend error: No error\nslurm_suspend error\n"
        )
        assert self.said(said) == Refusals(
            (
                OrderRefusal("12", "Invalid job id specified"),
                OrderRefusal("3_9", "Invalid job id specified"),
                OrderRefusal("3_[4-6]", "Job is pending execution"),
            )
        )

    def test_one_task_of_a_range(self) -> None:
        assert self.said("3_4,6: No error\n3_5: No\n") == Refusals((OrderRefusal("3_[4-6]", "No"),))

    def test_tasks_named_in_steps(self) -> None:
        assert self.said("3_3-9:6: No\n").named == (OrderRefusal("3_9", "No"),)

    def test_scancel(self) -> None:
        said = "scancel: error: Kill job error on job id 7: Invalid job id specified\n"
        assert self.said(said).named == (OrderRefusal("7", "Invalid job id specified"),)

    @pytest.mark.parametrize("said", ["a riddle", "Some fault for job 99", "Invalid job id for job 7,3_[0-8:2],12"])
    def test_a_message_may_name_none_of_them(self, said: str) -> None:
        assert self.said(said) == Refusals(unnamed=said)
        assert self.said(f"No for job 7\n{said}\n") == Refusals((OrderRefusal("7", "No"),), said)

    def test_no_message_at_all(self) -> None:
        assert self.said("") == Refusals(unnamed="exit 1 without a message")

    def test_success(self) -> None:
        assert parse_refusals(self.refs, CommandOutput("", "a warning", 0)) == Refusals()

    @pytest.mark.parametrize("said", ["Unable to contact slurm controller", "Unexpected message received for job 7"])
    def test_slurm_may_be_away(self, said: str) -> None:
        assert self.said(said).is_doubt


class TestLicenses:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("(null)", ()),
            ("", ()),
            (",,,", ()),
            ("ve_n1:2", (("ve_n1", 2),)),
            ("ve_n2,mem_n1:3,ve_n1:1", (("mem_n1", 3), ("ve_n1", 1), ("ve_n2", 1))),
            ("ve_n1:1;ve_n2:2", (("ve_n1", 1), ("ve_n2", 2))),
            ("ve_n1:1,ve_n1:1", (("ve_n1", 2),)),
            ("ve_n1:0", ()),
            ("fluent@server:2", (("fluent@server", 2),)),
            ("ve_n1:1|ve_n2:1", (("ve_n1:1|ve_n2:1", 1),)),
            ("a:99999999999999999999999", (("a", 2**31 - 1),)),
            # All of these Slurm takes, and shows as they were written (22.05).
            ("a:+2", (("a", 2),)),
            ("a:", ()),
            ("a:\t1,b:\n2", (("a", 1), ("b", 2))),
            ("a:4294967297", (("a", 1),)),
            ("a:-4294967295", (("a", 1),)),
            ("a:00000000000000000000000000002", (("a", 2),)),
        ],
    )
    def test_are_counts_by_name(self, text: str, found: tuple[tuple[str, int], ...]) -> None:
        assert values.license_counts(text) == found
        assert job(ROW._replace(licenses=text)).licenses == found

    @given(st.text())
    def test_are_never_a_reason_not_to_see_a_job(self, text: str) -> None:
        assert all(name and count > 0 for name, count in values.license_counts(text))

    @given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_.@-]{0,8}", fullmatch=True), st.integers(1, 9999)))
    def test_are_asked_for_as_they_are_shown(self, counts: dict[str, int]) -> None:
        if "none" not in counts:
            assert values.license_counts(values.licenses_text(values.pairs(counts))) == values.pairs(counts)

    def test_alternatives_are_asked_for_as_they_are_shown(self) -> None:
        assert values.licenses_text(values.license_counts("ve_n1:1|ve_n2:1,b")) == "b:1,ve_n1:1|ve_n2:1"

    @pytest.mark.parametrize("pair", [("a b", 1), ("a,b", 1), ("a=b", 1), ("", 1), ("-a", 1), ("a", 0), ("a\n", 1)])
    def test_nothing_else_gets_into_a_command(self, pair: tuple[str, int]) -> None:
        with pytest.raises(ValueError, match="not licenses"):
            values.licenses_text([pair])

    def test_there_are(self) -> None:
        text = (
            "LicenseName=mem_n1 Total=8 Used=3 Free=5 Reserved=0 Remote=no\n"
            "LicenseName=ve_n1 Total=2 Used=4 Free=0 Reserved=0 Remote=no LastConsumed=0\n"
        )
        assert parse_cluster.parse_licenses(text) == [LicenseRow("mem_n1", 8, 3), LicenseRow("ve_n1", 2, 4)]
        assert parse_cluster.parse_licenses("No licenses configured in Slurm.\n") == []

    @pytest.mark.parametrize("text", ["LicenseName=a Total=2\n", "LicenseName=a Total=x Used=1\n", "nonsense\n"])
    def test_what_is_not_understood_is_reported(self, text: str) -> None:
        with pytest.raises(ParseError):
            parse_cluster.parse_licenses(text)


@pytest.mark.parametrize(
    "text",
    [
        "n[1-4000000000]",
        "n[1-900000000]",
        "n[1-60000]x[1-60000]",
        "n1,m[1-200000],k[000001-100000]",
        f"n[1-{'9' * 5000}]",
        f"n[1-1{'0' * 20}]",
    ],
)
def test_no_list_of_nodes_is_expanded_beyond_what_a_cluster_can_have(text: str) -> None:
    with pytest.raises(ParseError, match="more than 262,144 nodes"):
        values.node_names(text)


def test_lists_of_nodes_are_read_up_to_there() -> None:
    assert len(values.node_names("n[1-262144]")) == 262_144
    assert values.node_names(" n1 n2,\tn[3, 5] ,") == ("n1", "n2", "n3", "n5"), "an update may write it so"
    assert values.node_names("r[1-2]n[01-02],m7,k[3,5-6]") == (
        "k3", "k5", "k6", "m7", "r1n01", "r1n02", "r2n01", "r2n02",
    )  # fmt: skip
    for wrong in ("n[2-1]", "n[1-2", "n[1-4]99999999999"):
        with pytest.raises(ParseError, match="not a list of nodes"):
            values.node_names(wrong)


@pytest.mark.parametrize("written", ["a*3", "a*+3", "a* 3", "a*\t+0000000003", "[a*1&b*2]", "a*2|b*3"])
def test_counts_of_nodes_are_read_as_slurm_reads_them(written: str) -> None:
    assert values.nodes_with_features(written) == 3
