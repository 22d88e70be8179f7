"""The gateway over Slurm's own commands (squeue, scontrol, scancel, sacctmgr): works with every Slurm that has them.

Needs root, SlurmUser or an operator. Measured on 22.05.8: 5,000 job records take about 0.2 s.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands import parse_jobs as parse
from omfs_daemon.slurm.commands import parse_cluster
from omfs_daemon.slurm.commands import parse_allocations as shares
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.gateway import AccountRow
from omfs_daemon.slurm.gateway import LicenceRow
from omfs_daemon.slurm.gateway import Licences
from omfs_daemon.slurm.gateway import Refusal
from omfs_daemon.slurm.gateway import SlurmSettings
from omfs_daemon.slurm.gateway import Waiting
from omfs_daemon.slurm.commands.refusals import refusals
from omfs_daemon.slurm.releases import Release
from omfs_daemon.slurm.commands.run_command import Output
from omfs_daemon.slurm.commands.run_command import Runner
from omfs_daemon.slurm.commands.run_command import failure
from omfs_daemon.slurm.commands.run_command import run

_CHUNK = 100  # refs in one command
_SINGLE_LOOKS = 8  # from here on one look at all jobs is cheaper than one at each
_ADMIN_COMMENT_KEPT = 1000
_SHOWN = 120
# What scontrol says both when slurmctld is away and about an unknown job that it should suspend.
_NO_ANSWER = "Unexpected message received"
_REF = re.compile(r"\d+(?:_(?:\d+|\[[\d,:-]+\]))?")
_NODE = re.compile(r"[A-Za-z0-9][\w.-]*")
_SIGNAL = re.compile(r"[A-Z0-9+]+")
_HAS_SHARES = (JobState.RUNNING, JobState.CONFIGURING, JobState.SUSPENDED, JobState.COMPLETING)
_TAKES_SIGNALS = (JobState.RUNNING, JobState.CONFIGURING, JobState.COMPLETING)

# All of squeue's states but "pending" in which a job has not ended.
_BEGUN = "configuring,running,suspended,completing,stopped,signaling,stage_out,resizing,special_exit"

_ShareKey = tuple[str, str, str, str]


class CommandGateway:
    """A :class:`~omfs_daemon.slurm.gateway.Gateway`.

    ``conf`` is the slurm.conf (None: SLURM_CONF or the system's own), ``timeout`` the seconds for each command,
    ``runner`` what runs it. Remembers job objects that did not change and where multi-node jobs have their CPUs.
    """

    def __init__(self, conf: Path | None = None, timeout: float = 30.0, runner: Runner = run) -> None:
        self._conf = conf
        self._timeout = timeout
        self._runner = runner
        self._release: Release | None = None
        self._settings: SlurmSettings | None = None
        self._known: dict[tuple[parse.JobRow, str, tuple[Share, ...]], Job] = {}
        self._spread: dict[_ShareKey, tuple[Share, ...]] = {}
        self._seen: set[str] = set()

    @property
    def name(self) -> str:
        return "commands"

    # -- seeing ------------------------------------------------------------------------------------
    def settings(self) -> SlurmSettings:
        self._settings = parse_cluster.settings(self._run("scontrol", "show", "config").stdout)
        return self._settings

    def jobs(self) -> list[Job]:
        with ThreadPoolExecutor(1) as aside:  # at the same time, for urgent jobs may wait for the answer
            asked = aside.submit(self._excluded)
            rows = self._rows()
            excluded = asked.result()
        known = self._seen.union(excluded)
        new = [row for row in rows if row.job_id not in known and parse.job_state(row.state) is JobState.PENDING]
        if new:  # they came between the two answers
            excluded |= self._excluded(f"--jobs={','.join(row.job_id for row in new)}")
        self._seen = {row.job_id for row in rows}
        return self.jobs_of(rows, excluded)

    def jobs_at_once(self, waiting: Sequence[Waiting]) -> list[Job]:
        with ThreadPoolExecutor(1 + len(waiting)) as aside:
            begun = aside.submit(self._rows, f"--states={_BEGUN}")
            asked = [aside.submit(self._rows, "--states=pending", *_options(which)) for which in waiting]
            found = {row.job_id: row for part in asked for row in part.result()}
            excluded = self._excluded(f"--jobs={','.join(found)}") if found else {}
            rows = list(({row.job_id: row for row in begun.result()} | found).values())
        rows = self._dependencies(rows)
        memory_counts = self._memory_counts()
        spread = self._shares(rows, memory_counts, forget=False)
        return [parse.job(row, excluded.get(row.job_id, ""), memory_counts, spread.get(row.job_id, ())) for row in rows]

    def rows(self, job_ids: Iterable[int] = ()) -> list[parse.JobRow]:
        """What squeue prints of these jobs that have not ended, array tasks besides; none named: of all."""
        named = ",".join(map(str, job_ids))
        try:
            return self._rows(*([f"--jobs={named}"] if named else []))
        except _NoSuchJobError:
            return []

    def jobs_of(self, rows: Sequence[parse.JobRow], excluded: Mapping[str, str]) -> list[Job]:
        """The jobs of these rows, which are those of all jobs; ``excluded``: ExcNodeList by job id."""
        rows = parse.dependencies(rows)
        memory_counts = self._memory_counts()
        spread = self._shares(rows, memory_counts)
        known: dict[tuple[parse.JobRow, str, tuple[Share, ...]], Job] = {}
        for row in rows:
            key = (row, excluded.get(row.job_id, ""), spread.get(row.job_id, ()))
            known[key] = self._known.get(key) or parse.job(row, key[1], memory_counts, key[2])
        self._known = known
        return list(known.values())

    def find(self, job_id: int) -> Job | None:
        try:
            rows = self._rows("--states=all", f"--jobs={job_id}")
        except _NoSuchJobError:
            return None
        mine = [row for row in rows if row.job_id == str(job_id)]  # an array's id gives its tasks as well
        if not mine:
            return None
        mine = self._dependencies(mine)
        memory_counts = self._memory_counts()
        excluded = self._excluded(f"--jobs={job_id}").get(str(job_id), "")
        spread = self._shares(mine, memory_counts, forget=False)
        return parse.job(mine[0], excluded, memory_counts, spread.get(str(job_id), ()))

    def nodes(self) -> list[Node]:
        return parse_cluster.nodes(self._run("scontrol", "--oneliner", "show", "nodes").stdout)

    def partitions(self) -> list[Partition]:
        return parse_cluster.partitions(self._run("scontrol", "--all", "--oneliner", "show", "partitions").stdout)

    def accounts(self) -> list[AccountRow] | None:
        settings = self.settings().values
        if settings.get("AccountingStorageType") != "accounting_storage/slurmdbd":
            return None
        cluster = settings.get("ClusterName", "")
        listed = ("list", "associations", f"cluster={cluster}", "format=Account,ParentName,User")
        return parse_cluster.accounts(self._run("sacctmgr", "--noheader", "--parsable2", *listed).stdout)

    def licenses(self) -> list[LicenceRow]:
        return parse_cluster.licenses(self._run("scontrol", "--oneliner", "show", "licenses").stdout)

    # -- telling -----------------------------------------------------------------------------------
    def hold(self, refs: Sequence[str]) -> list[Refusal]:
        return self._tell(refs, lambda listed: ["scontrol", "hold", listed])

    def release(self, refs: Sequence[str]) -> list[Refusal]:
        return self._tell(refs, lambda listed: ["scontrol", "release", listed])

    def set_nice(self, refs: Sequence[str], nice: int) -> list[Refusal]:
        return self._tell(refs, lambda listed: ["scontrol", "update", f"jobid={listed}", f"nice={nice}"])

    def pin(self, ref: str, nodes: Sequence[str], licenses: Licences | None = None) -> list[Refusal]:
        return self._place(ref, nodes, licenses)

    def pin_and_rank(self, ref: str, nodes: Sequence[str], licenses: Licences | None, nice: int) -> list[Refusal]:
        return self._place(ref, nodes, licenses, f"nice={nice}")

    def _place(self, ref: str, nodes: Sequence[str], licenses: Licences | None, *more: str) -> list[Refusal]:
        if not are_nodes(nodes):
            raise ValueError(f"not names of nodes: {nodes!r}")
        wanted = [f"nodelist={','.join(nodes)}", *more]
        if licenses is not None:
            if wrong := values.not_licenses(licenses):
                return [Refusal(ref, wrong)]
            if self._known_release().pins_before_licences and (wrong := self._not_there(licenses)):
                return [Refusal(ref, wrong)]
            wanted.append(f"licenses={values.licenses_text(licenses)}")
        return self._tell([ref], lambda listed: ["scontrol", "update", f"jobid={listed}", *wanted])

    def set_licenses(self, refs: Sequence[str], licenses: Licences) -> list[Refusal]:
        if wrong := values.not_licenses(licenses):
            return [Refusal(ref, wrong) for ref in refs]
        wanted = f"licenses={values.licenses_text(licenses)}"
        return self._tell(refs, lambda listed: ["scontrol", "update", f"jobid={listed}", wanted])

    def allow_requeue(self, refs: Sequence[str]) -> list[Refusal]:
        return self._tell(refs, lambda listed: ["scontrol", "update", f"jobid={listed}", "requeue=1"])

    def requeue_hold(self, refs: Sequence[str]) -> list[Refusal]:
        # Without "Incomplete" a job that has ended since we looked would be run once more.
        return self._tell(refs, lambda listed: ["scontrol", "requeuehold", "Incomplete", listed])

    def suspend(self, refs: Sequence[str]) -> list[Refusal]:
        return self._tell(refs, lambda listed: ["scontrol", "suspend", listed])

    def resume(self, refs: Sequence[str]) -> list[Refusal]:
        return self._tell(refs, lambda listed: ["scontrol", "resume", listed])

    def set_admin_comment(self, refs: Sequence[str], text: str) -> list[Refusal]:
        clean = one_line(text)
        return self._tell(refs, lambda listed: ["scontrol", "update", f"jobid={listed}", f"admincomment={clean}"])

    def signal(self, ref: str, signal: str, batch_only: bool = False) -> list[Refusal]:
        if not _SIGNAL.fullmatch(signal):
            raise ValueError(f"not a signal: {signal!r}")
        if not _REF.fullmatch(ref):
            raise ValueError(f"not a reference of a job: {ref!r}")
        # scancel tries again for minutes if the job waits or is suspended, and says nothing if it has ended.
        state = self._state(ref)
        if state not in _TAKES_SIGNALS:
            what = "Invalid job id specified" if state is None else f"Job is {state}"
            return [Refusal(ref, what)]
        options = [f"--signal={signal}", *(["--batch"] if batch_only else [])]
        return self._tell([ref], lambda listed: ["scancel", *options, listed])

    # -- inside ------------------------------------------------------------------------------------
    def _run(self, *arguments: str, variables: dict[str, str] | None = None, check: bool = True) -> Output:
        return self._runner(arguments, timeout=self._timeout, conf=self._conf, check=check, variables=variables)

    def _known_release(self) -> Release:
        # That of the commands: they choose the words, and may be older than slurmctld.
        if self._release is None:
            self._release = Release.of(self._run("squeue", "--version").stdout)
        return self._release

    def _tell(self, refs: Sequence[str], command: Callable[[str], list[str]]) -> list[Refusal]:
        wrong = [ref for ref in refs if not _REF.fullmatch(ref)]
        if wrong:
            raise ValueError(f"not references of jobs: {wrong!r}")
        found: list[Refusal] = []
        for first in range(0, len(refs), _CHUNK):
            chunk = refs[first : first + _CHUNK]
            found += refusals(chunk, self._run(*command(",".join(chunk)), check=False))
        if any(refusal.message.startswith(_NO_ANSWER) for refusal in found) and not self._answers():
            raise GatewayError(f"Slurm did not answer to an order for {', '.join(refs)[:_SHOWN]}")
        return found

    def _not_there(self, licenses: Licences) -> str:
        """Of licences that Slurm would refuse, one in words; alternatives ("a|b") are left to Slurm."""
        total = {row.name: row.total for row in self.licenses()}
        wrong = [f"{name}:{count}" for name, count in licenses if "|" not in name and count > total.get(name, 0)]
        return f"Invalid license specification: {wrong[0]}" if wrong else ""

    def _answers(self) -> bool:
        return "is UP" in self._run("scontrol", "ping", check=False).stdout

    def _state(self, ref: str) -> JobState | None:
        """Of a job or of one task; an array's waiting rest waits."""
        if "[" in ref:
            return JobState.PENDING
        try:
            rows = self._rows("--states=all", f"--jobs={ref}")
        except _NoSuchJobError:
            return None
        return parse.job_state(rows[0].state) if rows else None

    def _rows(self, *options: str) -> list[parse.JobRow]:
        secret, release = _secret(), self._known_release()
        # The format goes by the environment: other users can read a command's arguments while it runs.
        printed = self._squeue(options, {"SQUEUE_FORMAT2": parse.job_format(secret, release)})
        return list(parse.job_rows(printed, secret, release))

    def _dependencies(self, rows: list[parse.JobRow]) -> list[parse.JobRow]:
        """Of a few jobs: ask for those that they name."""
        named = {job_id for row in rows for job_id in parse.named(row)}
        try:
            others = self._rows(f"--jobs={','.join(sorted(named))}") if named else []
        except _NoSuchJobError:
            others = []
        return parse.dependencies(rows, others)

    def _excluded(self, *options: str) -> dict[str, str]:
        secret = _secret()
        states = f"--states={self._known_release().waiting_states}"
        try:
            printed = self._squeue((*options, states), {"SQUEUE_FORMAT": parse.excluded_format(secret)})
        except _NoSuchJobError:
            return {}
        return parse.excluded(printed, secret)

    def _squeue(self, options: Iterable[str], variables: dict[str, str]) -> str:
        # Without --noconvert squeue writes 1024 CPUs as "1K".
        array = self._known_release().array_option
        arguments = ("squeue", "--noheader", array, "--noconvert", "--all", *options)
        output = self._run(*arguments, variables=variables, check=False)
        if output.code == 0:
            return output.stdout
        if "Invalid job id specified" in output.stderr:
            raise _NoSuchJobError
        self._release = None  # somebody may have installed another one beside us
        raise failure(arguments, output)

    def _memory_counts(self) -> bool:
        settings = self._settings or self.settings()
        return "MEMORY" in settings.values.get("SelectTypeParameters", "").upper()

    def _shares(
        self, rows: Sequence[parse.JobRow], memory_counts: bool, forget: bool = True
    ) -> dict[str, tuple[Share, ...]]:
        """By job id, for the jobs that have nodes."""
        here = [row for row in rows if parse.job_state(row.state) in _HAS_SHARES]
        wide = [row for row in here if len(values.nodes(row.node_list)) > 1]
        new = [row for row in wide if _share_key(row) not in self._spread]
        spread = self._look(new, memory_counts)
        kept = {_share_key(row) for row in wide} if forget else set(self._spread)
        self._spread = {key: value for key, value in self._spread.items() if key in kept} | spread
        return {row.job_id: self._spread.get(_share_key(row)) or shares.simple(row, memory_counts) for row in here}

    def _look(self, rows: Sequence[parse.JobRow], memory_counts: bool) -> dict[_ShareKey, tuple[Share, ...]]:
        """Ask scontrol where these jobs are; those without an exact answer (they just ended) are left out."""
        found: dict[_ShareKey, tuple[Share, ...]] = {}
        everything = self._details() if len(rows) > _SINGLE_LOOKS else ""
        for row in rows:
            exact = shares.exact(everything, row, memory_counts) if everything else None
            exact = exact or shares.exact(self._details(_details_ref(row)), row, memory_counts)
            if exact:
                found[_share_key(row)] = exact
        return found

    def _details(self, *ref: str) -> str:
        arguments = ("scontrol", "--oneliner", "--details", "show", "job", *ref)
        output = self._run(*arguments, check=False)
        if output.code != 0 and "Invalid job id specified" not in output.stderr:
            raise failure(arguments, output)
        return output.stdout


class _NoSuchJobError(GatewayError):
    """squeue was asked for a job that Slurm does not know."""


def _secret() -> str:
    # A suffix that began with a digit would be taken for a size, a comma would end the field.
    return f"<{secrets.token_hex(16)}>"


def _options(which: Waiting) -> list[str]:
    lists = {"partition": which.partitions, "qos": which.qos, "account": which.accounts}
    return [f"--{name}={','.join(sorted(listed))}" for name, listed in lists.items() if listed]


def _share_key(row: parse.JobRow) -> _ShareKey:
    return (row.job_id, row.start, row.node_list, row.cpus)


def _details_ref(row: parse.JobRow) -> str:
    tasks = values.tasks(row.array_task_id)
    return f"{row.array_job_id}_{tasks[0]}" if tasks else row.job_id


def are_nodes(names: Iterable[str]) -> bool:
    """Whether these can be names of nodes, and nothing else in a command."""
    return all(_NODE.fullmatch(name) for name in names)


def one_line(text: str) -> str:
    """Printable, and without the quotes that scontrol would take as its own."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line.replace('"', "'")[:_ADMIN_COMMENT_KEPT]
