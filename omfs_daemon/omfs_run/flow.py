"""From the arguments to the end: what kind of run it is, and what it needs."""

import os
import platform
import shutil
import tempfile
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from omfs_daemon.omfs_run import arguments
from omfs_daemon.omfs_run.store import directory
from omfs_daemon.omfs_run import driver_table as drivers
from omfs_daemon.omfs_run.batch_script import look as form_look
from omfs_daemon.protocol import job_comment as word
from omfs_daemon.omfs_run.drivers.application import Application
from omfs_daemon.omfs_run.arguments import Misused
from omfs_daemon.omfs_run.arguments import Options
from omfs_daemon.omfs_run.run_tool import CallFailed
from omfs_daemon.omfs_run.drivers.child import Child
from omfs_daemon.omfs_run.job_exit import Desk
from omfs_daemon.omfs_run.drivers.driver import CannotStart
from omfs_daemon.omfs_run.drivers.driver import Driver
from omfs_daemon.omfs_run.store.generations import SCRATCH
from omfs_daemon.omfs_run.store.generations import Busy
from omfs_daemon.omfs_run.store.generations import Generations
from omfs_daemon.omfs_run.store.manifest import Refused
from omfs_daemon.omfs_run.store.computed_time import Progress
from omfs_daemon.omfs_run.run import NOT_EXECUTABLE
from omfs_daemon.omfs_run.run import NOT_FOUND
from omfs_daemon.omfs_run.run import Run
from omfs_daemon.omfs_run.run import Setting
from omfs_daemon.omfs_run.message import say
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.protocol.exit_codes import HELD
from omfs_daemon.protocol.exit_codes import MISUSED
from omfs_daemon.omfs_run.slurm_job import SlurmJob

_TRIES = 6  # to read the job's comment when it is to say the method
_PAUSE = 5.0
_LOCK_LIMIT = 30.0  # seconds for an earlier run of the job to end
_PLAIN_POLL = 1.0
_RECORDED = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_CPUS_ON_NODE")


def flow(argv: Sequence[str], inbox: Inbox) -> int:
    """Run the program under its method; the exit code to end with."""
    environment = dict(os.environ)
    try:
        options = arguments.parse(argv, environment)
        if not environment.get("SLURM_JOB_ID"):
            say("not in a Slurm job: the program runs without checkpoints")
            return plain(options.command, inbox)
        job = SlurmJob(environment)
        if os.geteuid() == 0 and job.uid != "0":
            raise Misused("runs as root in a job of uid {}: start it as the job's owner".format(job.uid or "unknown"))
    except Misused as error:
        say(str(error))
        return MISUSED
    comment = _comment(job, _TRIES if options.method is None else 1)
    method = options.method or drivers.first_known(word.methods(comment or ""))
    if method is None and comment is not None:
        return plain(options.command, inbox)
    return _with_checkpoints(options, environment, inbox, job, method, comment or "")


def plain(command: Sequence[str], inbox: Inbox) -> int:
    """Run the program without a method: signals are passed on, its exit code is kept."""
    try:
        program = Child(command, os.environ, own_session=False)
    except CannotStart as error:
        say(str(error))
        return NOT_FOUND if error.why == "no_program" else NOT_EXECUTABLE
    while True:
        code = program.wait(0)
        if code is not None:
            return code
        for number in inbox.take():
            program.signal(number)
        if inbox.asked is not None:
            inbox.asked = None
            say("asked for a checkpoint, but the program runs without a method")
        inbox.wait(_PLAIN_POLL)


def _comment(job: SlurmJob, tries: int) -> Optional[str]:
    """The job's comment; None if Slurm does not tell it."""
    for left in reversed(range(tries)):
        try:
            return job.comment()
        except CallFailed as error:
            say("cannot read the job's comment: {}".format(error))
        if left:
            time.sleep(_PAUSE)
    return None


def _with_checkpoints(
    options: Options, environment: Mapping[str, str], inbox: Inbox, job: SlurmJob, method: Optional[str], comment: str
) -> int:
    desk = Desk(job, form_look(environment, os.getpid()), inbox)
    desk.look()
    try:
        descriptor, path = directory.open_private(arguments.directory(options, environment, job.number), os.geteuid())
        store = Generations(descriptor, path)
        if store.lock(_LOCK_LIMIT):
            store.tidy()
        else:
            say("{}: no locks on this file system".format(path))
        method, known = _method(store, method)
    except (directory.BadDirectory, Busy, OSError) as error:
        busy = isinstance(error, Busy)
        say("{}; the job is held".format(error))
        desk.tell(word.HELD, method=method or "none", why="busy" if busy else "bad_directory")
        return desk.leave(HELD if busy else MISUSED)
    if method is None:
        return plain(options.command, inbox)
    try:
        driver = _driver(method, options, environment, job.restarts)
        store.verify_ahead()
        tool = driver.version()
        # Programs that keep their own checkpoints touch their mark from any node.
        scratch = tempfile.mkdtemp(prefix=SCRATCH, dir=None if driver.makes_image else path)
    except (CannotStart, OSError) as error:
        why = error.why if isinstance(error, CannotStart) else "not_writable"
        say("method {} cannot be used here: {}".format(method, error))
        if known or _was_stopped(comment, job.restarts):
            desk.tell(word.HELD, method=method, why=why)
            return desk.leave(HELD)
        desk.tell(word.FAILED, method=method, why=why)
        return plain(options.command, inbox)
    setting = Setting(
        command=options.command,
        driver=driver,
        scratch=scratch,
        limit=options.within,
        fresh_if_lost=options.fresh_if_lost,
        was_stopped=_was_stopped(comment, job.restarts),
        facts=_facts(options.command, environment, tool),
    )
    try:
        return Run(setting, desk, inbox, store, Progress(descriptor)).go()
    finally:
        job.flush()
        shutil.rmtree(scratch, ignore_errors=True)


def _method(store: Generations, asked: Optional[str]) -> Tuple[Optional[str], List[str]]:
    """The method of the newest checkpoint, else the one that was asked for; and the checkpoints that there are."""
    names = store.candidates()
    for name in names:
        try:
            made_by = store.manifest(name).method
        except (Refused, OSError):
            continue
        if made_by in drivers.NAMES:
            if asked not in (None, made_by):
                say("goes on under method {}, with which it was stopped, not {}".format(made_by, asked))
            return made_by, names
    return asked, names


def _driver(method: str, options: Options, environment: Mapping[str, str], restarts: int) -> Driver:
    if method == Application.name:
        return Application(options.number, options.command, environment, restarts)
    return drivers.load(method)


def _was_stopped(comment: str, restarts: int) -> bool:
    """Whether an earlier run left a checkpoint. After a hold too: only its owner knows better, and removes the word."""
    last = word.find(comment)
    return last is not None and last.restarts < restarts and last.state in (word.STOPPED, word.HELD)


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
