"""The question whether Slurm would start a waiting job on certain nodes, if their CPUs were free.

It is put by an immediate allocation: a copy of the job, as its owner, ranked first, and pinned to the nodes. Slurm
checks everything else before it looks for CPUs, so the error tells what is lacking. job_submit.lua ranks the copy
first: only it may, and only for a request with a nonce that root has left for it, which is good once, for a few
seconds, and for this request alone. Its owner could read the nonce in salloc's environment, stop salloc, and put the
question in its place; so whatever salloc says, nothing with the copy's name is left behind.
"""

from __future__ import annotations

import os
import pwd
import secrets
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import ceil, inf
from pathlib import Path

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import CommandOutput, run_command

QUESTION_NAME = "omfs-question"
"""The name of every copy begins with this."""

PERMITS = "questions"
"""In omfsd's run directory: a directory of SlurmUser's, with a file for each nonce, which job_submit.lua reads and
removes: the owner's uid, the second (since the epoch) until which it is good, and salloc's options, one on a line."""

GRANTED = "granted"

_GOOD_FOR = 5  # seconds
_TIMEOUT = 3.0


def answers_questions(settings: Mapping[str, str]) -> bool:
    """Whether a Slurm with these settings does: where it defers, it does not, and where it preempts jobs itself, it
    would requeue victims for the copy."""
    options = settings.get("SchedulerParameters", "").replace(" ", "").lower().split(",")
    return "defer" not in options and settings.get("PreemptType", "").endswith("none")


def put_question(
    gateway: CommandGateway, job_id: int, nodes: Sequence[str], conf: Path | None, permits: Path, slurm_uid: int
) -> str:
    """GRANTED if the copy would start at once (it is canceled), or Slurm's error. As root only.

    All about the job is read from slurmctld. GatewayError if the question cannot be put, or is not answered in time.
    """
    row = next((row for row in gateway.rows([job_id]) if row.job_id == str(job_id)), None)
    job = gateway.jobs_of([row], {})[0] if row is not None else None
    if job is None or job.state is not JobState.PENDING or job.uid <= 0:
        raise GatewayError(f"Slurm has no job {job_id} of a user's that waits")
    options = copy_options(job, nodes, gateway.partitions())
    reservation = _slurm(("squeue", "--noheader", "--format=%v", f"--jobs={job_id}"), conf).stdout.strip()
    if reservation not in ("", "(null)"):
        options.append(f"--reservation={reservation}")
    name = f"{QUESTION_NAME}-{secrets.token_hex(6)}"
    become = ("setpriv", f"--reuid={job.uid}", f"--regid={pwd.getpwuid(job.uid).pw_gid}", "--init-groups")
    salloc = ("salloc", "--immediate", "--no-shell", "--chdir=/")
    asked = (f"--job-name={name}", f"--nodelist={','.join(nodes)}", *options)
    is_refused = False
    try:
        with permit(permits, job.uid, asked, slurm_uid) as nonce:
            # In the environment: arguments are seen by everybody. job_submit.lua takes it off before it is stored.
            output = _slurm((*become, *salloc, *asked), conf, f"omfs:{nonce}")
        is_refused = output.code != 0 and not _has_copy(job.uid, name, conf)
    finally:
        if not is_refused:
            _slurm(("scancel", f"--user={job.uid}", f"--name={name}"), conf)
    return output.stderr.strip().rpartition("error: ")[2] if is_refused else GRANTED


def copy_options(job: Job, nodes: Sequence[str], partitions: Sequence[Partition]) -> list[str]:
    """salloc's options for a copy of the job; GatewayError if there are none that say the same."""
    request = job.request
    if job.set_aside or job.array_id is not None or request.gres or job.eligible == inf:
        raise GatewayError("Slurm cannot be asked about a job like this one")
    having = [each.name for each in partitions if each.name in request.partitions and each.nodes.issuperset(nodes)]
    if not having:
        raise GatewayError(f"no partition of the job has {', '.join(nodes)}")
    most = f"-{request.max_nodes}" if request.max_nodes else ""
    chosen = {
        f"--partition={having[0]}": True,
        f"--account={job.account}": bool(job.account),
        f"--qos={job.qos}": bool(job.qos),
        f"--ntasks={request.cpus}": True,
        f"--nodes={request.nodes}{most}": True,
        f"--mincpus={request.min_cpus_per_node}": request.min_cpus_per_node > 1,
        f"--mem-per-cpu={request.memory_per_cpu >> 20}M": request.memory_per_cpu > 0,
        f"--mem={request.memory_per_node >> 20}M": request.memory_per_node > 0,
        f"--constraint={request.features}": bool(request.features),
        f"--licenses={','.join(f'{name}:{count}' for name, count in job.licenses)}": bool(job.licenses),
        "--exclusive": request.exclusive,
        f"--time={'UNLIMITED' if job.time_limit == inf else ceil(job.time_limit / 60)}": True,
    }
    return [option for option, is_wanted in chosen.items() if is_wanted]


def _has_copy(uid: int, name: str, conf: Path | None) -> bool:
    """Whether Slurm knows a copy that has not ended: salloc's own word may be its owner's, who can kill it. Of one
    user's jobs, unlike scancel, squeue asks for no others."""
    shown = _slurm(("squeue", "--noheader", f"--user={uid}", f"--name={name}", "--format=%i"), conf)
    return shown.code != 0 or any(word.isdigit() for word in shown.stdout.split())


@contextmanager
def permit(directory: Path, uid: int, options: Sequence[str], slurm_uid: int) -> Iterator[str]:
    """A nonce that job_submit.lua knows. omfsd could have put something else in the directory's place."""
    if any("\n" in option for option in options):
        raise GatewayError("Slurm cannot be asked about a job whose request has a line break")
    nonce = secrets.token_hex(16)
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(place)
        if found.st_uid != slurm_uid or stat.S_IMODE(found.st_mode) != 0o700:
            raise GatewayError(f"{directory}: not a directory of SlurmUser's alone")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(nonce, flags, 0o600, dir_fd=place), "w") as file:
            os.fchown(file.fileno(), slurm_uid, -1)
            file.write("".join(f"{line}\n" for line in (f"{uid} {int(time.time()) + _GOOD_FOR}", *options)))
        try:
            yield nonce
        finally:
            with suppress(FileNotFoundError):  # it was used
                os.unlink(nonce, dir_fd=place)
    finally:
        os.close(place)


def give_permits(directory: Path, owner: int, slurm_uid: int) -> None:
    """Give the directory, which omfsd (``owner``) has made, to SlurmUser alone. As root only."""
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(place).st_uid not in (owner, slurm_uid):
            raise GatewayError(f"{directory}: not a directory of uid {owner}")
        os.fchown(place, slurm_uid, -1)
        os.fchmod(place, 0o700)
    finally:
        os.close(place)


def _slurm(arguments: Sequence[str], conf: Path | None, nonce: str = "") -> CommandOutput:
    variables = {"SALLOC_WCKEY": nonce} if nonce else {}
    return run_command(arguments, timeout=_TIMEOUT, conf=conf, check=False, cwd=Path("/"), variables=variables)
