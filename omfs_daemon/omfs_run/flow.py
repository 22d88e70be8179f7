"""From the arguments to the exit code: with or without checkpoints, and what a run with them needs."""

import contextlib
import os
import platform
import shutil
import tempfile
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from omfs_daemon.omfs_run import arguments, driver_table, private_directory
from omfs_daemon.omfs_run.arguments import Misused, RunOptions
from omfs_daemon.omfs_run.batch_script import check_batch_script
from omfs_daemon.omfs_run.drivers.application import Application
from omfs_daemon.omfs_run.drivers.child import Child
from omfs_daemon.omfs_run.drivers.driver import CannotStart, Driver
from omfs_daemon.omfs_run.job_exit import JobExit
from omfs_daemon.omfs_run.message import message
from omfs_daemon.omfs_run.run import NOT_EXECUTABLE, NOT_FOUND, Run, RunSetup
from omfs_daemon.omfs_run.run_tool import CallFailed
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.omfs_run.slurm_job import SlurmJob
from omfs_daemon.omfs_run.store.computed_time import ComputedTime
from omfs_daemon.omfs_run.store.generations import SCRATCH, Busy, Generations
from omfs_daemon.omfs_run.store.manifest import BadManifest
from omfs_daemon.protocol import job_comment
from omfs_daemon.protocol.exit_codes import HELD, MISUSED

_TRIES = 6  # to read the job's comment when it gives the method
_PAUSE = 5.0
_LOCK_LIMIT = 30.0  # seconds for an earlier run of the job to end
_PLAIN_POLL = 1.0
_RECORDED = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_CPUS_ON_NODE")


def flow(argv: Sequence[str], inbox: Inbox) -> int:
    """Run the program with its method; returns the exit code to end with."""
    environment = dict(os.environ)
    try:
        options = arguments.parse_arguments(argv, environment)
        if not environment.get("SLURM_JOB_ID"):
            message("not in a Slurm job: the program runs without checkpoints")
            return plain(options.command, inbox)
        job = SlurmJob(environment)
        if os.geteuid() == 0 and job.uid != "0":
            raise Misused("runs as root in a job of uid {}: start it as the job's owner".format(job.uid or "unknown"))
    except Misused as error:
        message(str(error))
        return MISUSED
    comment = _comment(job, _TRIES if options.method is None else 1)
    method = options.method or driver_table.first_known(job_comment.methods_in_comment(comment or ""), job.nodes)
    if method is None and comment is not None:
        if job_comment.METHOD_KEY in comment and not job_comment.methods_in_comment(comment):
            message("the job's comment needs omfs:method=NAME[,NAME...]: the program runs without checkpoints")
        return plain(options.command, inbox)
    return _with_checkpoints(options, environment, inbox, job, method, comment or "")


def plain(command: Sequence[str], inbox: Inbox) -> int:
    """Run the program without checkpoints: pass on signals, and return its exit code."""
    try:
        program = Child(command, os.environ, own_session=False)
    except CannotStart as error:
        message(str(error))
        return NOT_FOUND if error.why == "no_program" else NOT_EXECUTABLE
    while True:
        code = program.wait(0)
        if code is not None:
            return code
        for number in inbox.take():
            program.signal(number)
        if inbox.requested is not None:
            inbox.requested = None
            message("a checkpoint was requested, but the program runs without a method")
        inbox.wait(_PLAIN_POLL)


def _comment(job: SlurmJob, tries: int) -> Optional[str]:
    """The job's comment; None if Slurm does not respond."""
    for left in reversed(range(tries)):
        try:
            return job.comment()
        except CallFailed as error:
            message("cannot read the job's comment: {}".format(error))
        if left:
            time.sleep(_PAUSE)
    return None


def _with_checkpoints(
    options: RunOptions,
    environment: Mapping[str, str],
    inbox: Inbox,
    job: SlurmJob,
    method: Optional[str],
    comment: str,
) -> int:
    job_exit = JobExit(job, check_batch_script(environment, os.getpid()), inbox)
    job_exit.ask_slurm()
    try:
        descriptor, path = private_directory.open_private(
            arguments.checkpoint_directory(options, environment, job.number), os.geteuid()
        )
        store = Generations(descriptor, path)
        if store.lock(_LOCK_LIMIT):
            store.remove_scratch()
        else:
            message("{}: this file system has no locks".format(path))
        method, checkpoints = _method(store, method)
    except (private_directory.BadDirectory, Busy, OSError) as error:
        busy = isinstance(error, Busy)
        message("{}; the job is held".format(error))
        job_exit.report(job_comment.HELD, method=method or "none", why="busy" if busy else "bad_directory")
        return job_exit.leave(HELD if busy else MISUSED)
    if method is None:
        return plain(options.command, inbox)
    try:
        driver = _driver(method, options, environment, job.restarts)
        if job.nodes > 1 and method in driver_table.ONE_NODE and not checkpoints:  # those have the whole program
            text = "the job has {} nodes, and it works on one (sbatch --nodes=1)".format(job.nodes)
            raise CannotStart("several_nodes", text)
        store.verify_ahead()
        tool = driver.version()
        # Programs that write their own checkpoints create their mark file from any node.
        scratch = tempfile.mkdtemp(prefix=SCRATCH, dir=None if driver.makes_image else path)
    except (CannotStart, OSError) as error:
        why = error.why if isinstance(error, CannotStart) else "not_writable"
        message("method {} cannot be used here: {}".format(method, error))
        if checkpoints or _was_stopped(comment, job.restarts):
            job_exit.report(job_comment.HELD, method=method, why=why)
            return job_exit.leave(HELD)
        job_exit.report(job_comment.FAILED, method=method, why=why)
        return plain(options.command, inbox)
    setup = RunSetup(
        command=options.command,
        driver=driver,
        scratch=scratch,
        limit=options.within,
        fresh_if_lost=options.fresh_if_lost,
        was_stopped=_was_stopped(comment, job.restarts),
        facts=_facts(options.command, environment, tool),
    )
    try:
        return Run(setup, job_exit, inbox, store, ComputedTime(descriptor)).go()
    finally:
        job.flush()
        with contextlib.suppress(RecursionError):  # at directories in each other that the program has made there
            shutil.rmtree(scratch, ignore_errors=True)


def _method(store: Generations, requested: Optional[str]) -> Tuple[Optional[str], List[str]]:
    """The method of the newest checkpoint, or else the requested one; and the names of the checkpoints."""
    names = store.candidates()
    for name in names:
        try:
            made_by = store.manifest(name).method
        except (BadManifest, OSError):
            continue
        if made_by in driver_table.NAMES:
            if requested not in (None, made_by):
                message("continues with method {} of its checkpoint, not {}".format(made_by, requested))
            return made_by, names
    return requested, names


def _driver(method: str, options: RunOptions, environment: Mapping[str, str], restarts: int) -> Driver:
    driver: Driver
    if method == Application.name:
        driver = Application(options.number, options.command, environment, restarts)
    else:
        driver = driver_table.load_driver(method)
    if options.rehearses:
        driver.rehearse_checkpoints()
    if options.may_lose_statuses:
        driver.accept_lost_statuses()
    return driver


def _was_stopped(comment: str, restarts: int) -> bool:
    """Whether an earlier run left a checkpoint, also after a hold: an owner who knows better removes it."""
    last = job_comment.find_run_comment(comment)
    return last is not None and last.restarts < restarts and last.state in (job_comment.STOPPED, job_comment.HELD)


def _facts(command: Sequence[str], environment: Mapping[str, str], tool: str) -> Dict[str, Any]:
    """What the manifest tells people about where a checkpoint was made."""
    return {
        "argv": [each.encode("utf-8", "backslashreplace").decode("utf-8") for each in command],
        "host": platform.node(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "version": tool,
        "slurm": {name: environment[name] for name in _RECORDED if name in environment},
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
