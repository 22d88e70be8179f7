"""The command adapter as the PySlurm adapter uses it, over the fake Slurm: with the rows that squeue would print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from omfs_daemon.cluster.job_refs import fold_tasks
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.slurm.commands import parse_dependencies, values
from omfs_daemon.slurm.commands import parse_jobs as parse
from omfs_daemon.slurm.commands.het_parts import HetParts
from omfs_daemon.slurm.commands.site_sizes import SiteSizes
from omfs_daemon.slurm.commands.squeue_fields import JobRow
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from tests.support.pyslurm_stand_in.server import MB, first_part, slurm_records, state_name


class FakeCommands(FakeGateway):
    """``asked``: the ids of every question for rows, none for all."""

    def __init__(self, fake: FakeGateway) -> None:
        super().__init__(fake.slurm)
        self.faults = fake.faults
        self.asked: list[tuple[int, ...]] = []
        self._het_parts = HetParts(self._squeue)

    def rows(self, job_ids: Iterable[int] = ()) -> list[JobRow]:
        self.asked.append(tuple(job_ids))
        wanted = set(self.asked[-1])
        return [
            printed(record)._replace(dependency=self._dependency(job))
            for job in self.jobs()
            if not wanted or not wanted.isdisjoint({job.id, *(part.id for part in job.parts)})
            for record in slurm_records(job)
        ]

    def _dependency(self, job: Job) -> str:
        others = self.slurm.records[job.id].what.after if job.eligible == inf else ()
        return ",".join(f"afterany:{other}(unfulfilled)" for other in others) or "(null)"

    def jobs_of(self, rows: Sequence[JobRow], excluded: Mapping[str, str]) -> list[Job]:
        records = [record for job in self.slurm.live() for record in slurm_records(job)]
        allocations = {str(record.id): record.allocations for record in records}
        rows = parse_dependencies.dependencies(rows)
        jobs = [
            parse.job(row, excluded.get(row.job_id, ""), SiteSizes(), allocations.get(row.job_id, ())) for row in rows
        ]
        return self._het_parts.merged(jobs, rows)

    def _squeue(self, _options: Iterable[str], _variables: dict[str, str]) -> str:
        """The answer to ``PARTS_FORMAT``."""
        whole = [one for one in self.slurm.records.values() if one.what.parts]
        return "".join(f"{one.id}|{one.id}-{one.id + len(one.what.parts)}|\n" for one in whole)


def printed(job: Job) -> JobRow:
    """The row that squeue prints of this job."""
    request = job.request
    memory = request.memory_per_cpu * request.cpus or request.memory_per_node * request.nodes
    return JobRow(
        job_id=str(job.id),
        array_job_id=str(job.array_id or job.id),
        array_task_id=fold_tasks(job.task_ids) + f"%{job.array_throttle}" * bool(job.array_throttle)
        if job.task_ids
        else "N/A",
        het_job_id=str(first_part(job) or "N/A"),
        state=state_name(job),
        reason=job.reason,
        partition=job.partition,
        user=job.user,
        uid=str(job.uid),
        account=job.account,
        qos=job.qos,
        tres=f"cpu={request.cpus},mem={memory // MB}M,node={request.nodes},billing={request.cpus}",
        cpus=str(request.cpus),
        tasks=str(request.cpus),
        min_cpus=str(request.min_cpus_per_node),
        nodes=str(request.nodes),
        max_nodes=str(request.max_nodes),
        min_memory="1?" if not request.cpus else f"{(request.memory_per_cpu or request.memory_per_node) // MB}M",
        tres_per_job="N/A",
        tres_per_node=",".join(f"gres:{name}:{count}" for name, count in request.gres) or "N/A",
        tres_per_socket="N/A",
        tres_per_task="N/A",
        tasks_per_node="0",
        cpus_per_tres="N/A",
        over_subscribe="NO" if request.exclusive else "OK",
        features=request.features or "(null)",
        licenses=values.licenses_text(job.licenses) or "(null)",
        required_nodes=",".join(sorted(request.required_nodes)),
        node_list=",".join(job.on_nodes),
        priority=str(job.priority),
        nice=str(job.nice),
        submit=str(int(job.submit)),
        eligible=str(int(job.eligible)) if job.eligible not in (None, inf) else "N/A",
        dependency="(null)",
        reservation=job.reservation or "(null)",
        start=str(int(job.start)) if job.start is not None else "N/A",
        time_used=f"{int(job.run_time) // 60}:{int(job.run_time) % 60}",
        time_limit=f"{int(job.time_limit) // 60}:{int(job.time_limit) % 60}" if job.time_limit < inf else "UNLIMITED",
        deadline=str(int(job.deadline)) if job.deadline < inf else "N/A",
        restarts=str(job.restarts),
        requeue=str(int(job.requeue)),
        batch=str(int(job.batch)),
        name=job.name,
        comment=job.comment,
        admin_comment=job.admin_comment,
    )
