"""The test's end of the stand-in: answers its questions and orders from a FakeGateway, as PySlurm 22.5.3 would."""

from __future__ import annotations

import json
import socketserver
import threading
from collections import deque
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from omfs_daemon.cluster.het_jobs import as_parts
from omfs_daemon.cluster.job_refs import fold_tasks
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.gateway import OrderRefusal
from omfs_daemon.testing.fake_slurm.fake_gateway import UNKNOWN, FakeGateway

MB = 1 << 20
HERE = Path(__file__).parent
UNREADABLE = {"raises": "list index out of range"}
NO_SUCH_JOB, REFUSED = 2017, 2021
NOBODY_THERE, HUNG_UP = 1800, 5005
RELEASED = 2**32 - 1


class StandInServer:
    """Serves one ``gateway`` at a time on a unix socket; ``variables`` are for the process that imports the stand-in.

    The tests' main thread waits for an answer while this one uses the fake, so no two do at once. ``faults``: what goes
    wrong in the next calls, one each (``pyslurm/__init__.py``; "half": of nodes and licenses only the nodes are set,
    "done": both are, and yet it is an error; "drops": it is done, and there is no answer).
    ``shows``: attributes that all jobs have besides; ``UNREADABLE`` is one that PySlurm cannot read.
    """

    def __init__(self, directory: Path) -> None:
        self.gateway: FakeGateway | None = None
        self.faults: deque[str] = deque()
        self.shows: dict[str, Any] = {}
        self.calls: list[str] = []
        path = directory / "fake.socket"
        self.variables = {"OMFS_STAND_IN_SOCKET": str(path), "PYTHONPATH": str(HERE)}
        self._server = socketserver.ThreadingUnixStreamServer(str(path), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    self.wfile.write(json.dumps(server.answer(json.loads(line))).encode() + b"\n")

        return Handler

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        fault = self.faults.popleft() if self.faults else ""
        self.calls.append(request["what"])
        try:
            value = self._do(request["what"], request["id"], request["fields"], fault)
        except GatewayError as error:
            return {"errno": NOBODY_THERE, "message": str(error)}
        except _Refused as error:
            return {"errno": error.errno, "message": str(error)}
        if fault == "drops":
            return {"errno": HUNG_UP, "message": "Zero Bytes were transmitted or received"}
        return {"value": value, "fault": fault}

    def _do(self, what: str, job_id: int, fields: dict[str, Any], fault: str) -> Any:
        gateway = self.gateway
        assert gateway is not None
        if what == "jobs":
            gateway.jobs()  # with its faults
            views = [record.view(gateway.slurm.now) for record in gateway.slurm.records.values()]
            return [self._shown(part) for view in views for part in slurm_records(view)]
        job = gateway.find(job_id)
        if job is None:
            hangs_up = what in ("suspend", "resume")
            raise (
                _Refused(HUNG_UP, "Zero Bytes were transmitted or received")
                if hangs_up
                else _Refused(NO_SUCH_JOB, UNKNOWN)
            )
        if what == "load":
            return self._shown(job)
        if refusals := self._order(gateway, what, job.ref, fields, fault):
            raise _Refused(REFUSED, refusals[0].message)
        return None

    def _order(
        self, gateway: FakeGateway, what: str, ref: str, fields: dict[str, Any], fault: str
    ) -> list[OrderRefusal]:
        if what in ("suspend", "resume"):
            refusals: list[OrderRefusal] = getattr(gateway, what)([ref])
            return refusals
        assert what == "modify", f"the adapter must not use {what}"
        licenses = values.license_counts(",".join(fields["licenses"])) if "licenses" in fields else None
        match sorted(fields):
            case ["nice"]:
                return gateway.set_nice([ref], int(fields["nice"]))
            case ["admin_comment", "priority"]:
                assert fields["priority"] in (0, RELEASED), "a number would stay for ever"
                order = gateway.release if fields["priority"] else gateway.hold
                return order([ref], fields["admin_comment"])
            case ["admin_comment"]:
                return gateway.set_admin_comment([ref], fields["admin_comment"])
            case ["is_requeueable"]:
                return gateway.allow_requeue([ref])
            case ["licenses"]:
                return gateway.set_licenses([ref], licenses or ())
            case ["required_nodes"] | ["licenses", "required_nodes"]:
                refusals = gateway.pin(ref, fields["required_nodes"], None if fault == "half" else licenses)
                return refusals or ([OrderRefusal(ref, "Invalid license specification")] if fault else [])
        raise AssertionError(f"the adapter must not modify {sorted(fields)}")

    def _shown(self, job: Job) -> dict[str, Any]:
        return as_pyslurm_shows(job) | self.shows


class _Refused(Exception):
    def __init__(self, errno: int, message: str) -> None:
        self.errno = errno
        super().__init__(message)


def as_pyslurm_shows(job: Job) -> dict[str, Any]:
    """The attributes of ``pyslurm.Job``, with what they cannot show left out as PySlurm does."""
    request, waiting = job.request, len(job.task_ids) > 1
    return {
        "id": job.id,
        "array_id": job.array_id,
        "array_task_id": None if waiting or not job.task_ids else job.task_ids[0] or None,
        "array_tasks_waiting": fold_tasks(job.task_ids) if waiting else None,
        "heterogeneous_id": first_part(job),
        "user_id": job.uid,
        "account": job.account or None,
        "qos": job.qos or None,
        "partition": job.partition,
        "cpus": request.cpus,
        "ntasks": request.cpus,
        "min_cpus_per_node": request.min_cpus_per_node,
        "num_nodes": request.nodes,
        "max_nodes": request.max_nodes or None,
        "memory_per_cpu": request.memory_per_cpu // MB or None,
        "memory_per_node": request.memory_per_node // MB or None,
        "gres_per_node": dict(request.gres),
        "resource_sharing": "NO" if request.exclusive else "OK",
        "constraints": request.features.split(",") if request.features else [],
        "allocated_nodes": ",".join(job.on_nodes) or None,
        "required_nodes": ",".join(sorted(request.required_nodes)) or None,
        "excluded_nodes": ",".join(sorted(request.excluded_nodes)) or None,
        "submit_time": int(job.submit),
        "time_limit": int(job.time_limit // 60) if job.time_limit < inf else None,
        "dependencies": None,
        "requeue_count": job.restarts,
        "is_requeueable": job.requeue,
        "name": job.name or None,
        "state": state_name(job),
        "state_reason": None if job.reason == "None" else job.reason,
        "priority": job.priority,
        "nice": job.nice % 2**32,  # as 22.5.3 reads it
        "eligible_time": int(job.eligible) if job.eligible not in (None, inf) else None,
        "start_time": int(job.start) if job.start is not None else None,
        "run_time": int(job.run_time),
        "comment": job.comment or None,
        "admin_comment": job.admin_comment or None,
        "licenses": values.licenses_text(job.licenses).split(",") if job.licenses else [],
    }


def slurm_records(job: Job) -> list[Job]:
    """The records that Slurm keeps of the job: of a heterogeneous one, one for each part."""
    records = zip(job.parts, as_parts(job), strict=True) if job.parts else ()
    found = [replace(one, id=part.id, ref=f"{job.id}+{part.id - job.id}") for part, one in records]
    alone = [replace(one, partition=one.request.partitions[0], set_aside="") for one in found]
    return alone or [job]


def first_part(job: Job) -> int | None:
    """Slurm's HetJobID of one of these records."""
    first, plus, _ = job.ref.partition("+")
    return int(first) if plus else None


def state_name(job: Job) -> str:
    """As Slurm calls it."""
    if job.state is JobState.ENDED:
        return "COMPLETED"
    return "SPECIAL_EXIT" if job.special_exit else job.state.value
