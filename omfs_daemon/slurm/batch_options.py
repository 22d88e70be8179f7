"""What a job asks for that would be submitted with sbatch's options (sbatch(1)). Pure; all text is a user's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TypeVar

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.batch_words import GivenOption, OptionWord, given_options
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.gres_nodes import NodeSize, SpreadGres

_NODES = re.compile(r"([0-9]{1,9}[kKmM]?)(?:-([0-9]{1,9}[kKmM]?))?")
_NODE_SIZES = re.compile(r"[0-9,:-]{1,200}")
_NAME = re.compile(r"[^\s,;]{1,200}")
_DAYS = re.compile(r"([0-9]{1,5})-([0-9]{1,5})(?::([0-9]{1,5}))?(?::([0-9]{1,5}))?")
_CLOCK = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?")
_UNLIMITED = ("unlimited", "infinite", "-1")
_MOST_NAMED = 50
_MOST = 10**7
_MOST_LISTED = 20_000
_TIMES = "minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]], or UNLIMITED"

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What the options say; 0, "", (), and None: nothing.

    Memory is bytes; ``limit``: seconds, inf for none. ``most_nodes``: above ``least_nodes`` only where a range is
    given. ``gres``: by name on each node; ``job_gres``, ``task_gres``: of the whole job, and for each task. ``others``:
    options that matter for the start and that no estimate takes into account, by their long names.
    """

    name: str = ""
    account: str = ""
    qos: str = ""
    partitions: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    limit: float | None = None
    least_nodes: int = 0
    most_nodes: int = 0
    tasks: int = 0
    cpus_per_task: int = 1
    tasks_per_node: int = 0
    cpus_per_node: int = 1
    memory_per_cpu: int = 0
    memory_per_node: int = 0
    gres: tuple[tuple[str, int], ...] = ()
    job_gres: tuple[tuple[str, int], ...] = ()
    task_gres: tuple[tuple[str, int], ...] = ()
    features: str = ""
    exclusive: bool = False
    required_nodes: frozenset[str] = frozenset()
    excluded_nodes: frozenset[str] = frozenset()
    licenses: tuple[tuple[str, int], ...] = ()
    reservation: str = ""
    comment: str = ""
    requeue: bool = True
    others: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """The least number of nodes."""
        by_tasks = ceil(self.tasks / self.tasks_per_node) if self.tasks and self.tasks_per_node else 1
        asked = min(self.least_nodes, self.tasks) if self.tasks else self.least_nodes  # no node is without a task
        return max(1, asked, by_tasks, len(self.required_nodes), values.nodes_with_features(self.features))

    def request(self, nodes: int, partition: str) -> JobRequest:
        """On so many nodes (at least) of a partition."""
        tasks = self.tasks or nodes * max(1, self.tasks_per_node)
        per_node = max(self.cpus_per_node, self.cpus_per_task * max(1, self.tasks_per_node if not self.tasks else 1))
        gres = {**dict(self.gres), **self._spread(tasks).of_each(nodes)}
        return JobRequest(
            cpus=max(tasks * self.cpus_per_task, nodes * per_node),
            nodes=nodes,
            max_nodes=max(nodes, self.most_nodes) if self.most_nodes else 0,
            min_cpus_per_node=per_node,
            memory_per_cpu=self.memory_per_cpu,
            memory_per_node=self.memory_per_node,
            gres=values.pairs(gres),
            features=self.features,
            exclusive=self.exclusive,
            partitions=(partition,),
            required_nodes=self.required_nodes,
            excluded_nodes=self.excluded_nodes,
        )

    def nodes_on(self, sizes: Iterable[NodeSize]) -> int:
        """The least number of nodes of these sizes."""
        for_gres = self._spread(max(1, self.tasks)).least_nodes(sizes)
        return max(self.nodes, min(for_gres, self.most_nodes or for_gres))

    def _spread(self, tasks: int) -> SpreadGres:
        return SpreadGres(dict(self.job_gres), dict(self.task_gres), tasks, self.cpus_per_task)

    @property
    def differs_by_nodes(self) -> bool:
        """Whether the number of nodes, of which there is a range, changes what is requested beside it."""
        return self.most_nodes > self.nodes and (not self.tasks or self.exclusive)


def batch_options(words: Sequence[OptionWord]) -> BatchOptions:
    """What these words say, the last of each option; ConfigError says where a value is wrong.

    Only the last one is read: a user may give an option a thousand times, each time with thousands of nodes.
    """
    last = dict[str, GivenOption]()
    for option in given_options(words):
        last.pop(option.name, None)  # requeue and no-requeue change the same, in the order of the last ones
        last[option.name] = option
    found, others = BatchOptions(), list[str]()
    for name, option in last.items():
        if name in _READ:
            found = _READ[name](found, option)
        elif name not in _DO_NOT_MATTER:
            others.append(name)
    if 0 < found.most_nodes < found.nodes:
        least = "what --ntasks and --ntasks-per-node need" if found.least_nodes < found.nodes else "the least number"
        raise last["nodes"].wrong(f"at least {found.nodes}, {least}")
    return replace(found, others=tuple(others))


def time_limit(text: str) -> float | None:
    """Seconds, whole minutes as Slurm rounds them up; inf for UNLIMITED and 0; None if it is no time."""
    if text.lower() in _UNLIMITED:
        return inf
    if match := _DAYS.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    elif match := _CLOCK.fullmatch(text):
        parts = [int(part) for part in match.groups() if part is not None]
        total = parts[0] * 60 + parts[1] if len(parts) == 2 else parts[0] * 60
        if len(parts) == 3:
            total = (parts[0] * 60 + parts[1]) * 60 + parts[2]
    else:
        return None
    return 60.0 * ceil(total / 60) if total else inf


# -- values ------------------------------------------------------------------------------------------------------------
def _whole(option: GivenOption) -> int:
    text = option.value
    if not (text.isascii() and text.isdecimal()) or not 1 <= len(text) <= 9 or not 1 <= int(text) <= _MOST:
        raise option.wrong(f"a whole number from 1 to {_MOST:,}")
    return int(text)


def _word(option: GivenOption) -> str:
    if not _NAME.fullmatch(option.value):
        raise option.wrong("a name without blanks and commas, of at most 200 characters")
    return option.value


def _names(option: GivenOption) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(option.value.split(",")))
    if len(names) > _MOST_NAMED or not all(_NAME.fullmatch(name) for name in names):
        raise option.wrong(f"1 to {_MOST_NAMED} names with commas between them")
    return names


def _time(option: GivenOption) -> float:
    seconds = time_limit(option.value)
    if seconds is None:
        raise option.wrong(_TIMES)
    return seconds


def _nodes(given: BatchOptions, option: GivenOption) -> BatchOptions:
    """``2``, ``2-4``; of ``1,3,8-12:2`` (since 23.02) the least and the most."""
    match, allowed = _NODES.fullmatch(option.value), f"a number or a range of nodes, from 1 to {_MOST:,}"
    if match is None and not _NODE_SIZES.fullmatch(option.value):
        raise option.wrong(allowed)
    texts = match.groups() if match else [text for text in re.split("[,-]|:[0-9]*", option.value) if text]
    counts = [_with_unit(text) for text in texts if text]
    if not counts or not 1 <= min(counts) <= max(counts) <= _MOST or (match and counts[-1] < counts[0]):
        raise option.wrong(allowed)
    return replace(given, least_nodes=min(counts), most_nodes=max(counts))


def _with_unit(text: str) -> int:
    units = {"k": 1024, "m": 1024**2}
    unit = units.get(text[-1].lower())
    return int(text[:-1]) * unit if unit else int(text)


def _memory(option: GivenOption) -> int:
    allowed = "a size such as 4000, 4000M or 4G"
    return _parsed(lambda text: values.memory(text.upper().removesuffix("B")), option, allowed)


def _gres(option: GivenOption, prefix: str = "") -> tuple[tuple[str, int], ...]:
    """``gpu:a100:2,ve:1``; with a prefix ``a100:2,v100:1`` of ``--gpus``."""
    if option.value.lower() == "none":
        return ()
    text = ",".join(f"{prefix}{part}" for part in option.value.split(",")) if prefix else option.value
    if any(part.count("|") for part in text.split(",")):
        raise option.wrong("names and counts, as gpu:2")
    return values.pairs(_parsed(lambda _: values.gres(text), option, "names and counts, as gpu:2"))


def _node_names(option: GivenOption) -> frozenset[str]:
    """Not kept by ``values``, and not too many: a user could ask for ``n[1-999999999]``."""
    allowed = f"a list of at most {_MOST_LISTED:,} nodes, as n[1-3],n7"
    names = _names_in_list(option.value)
    if names is None or sum(count for _, count in names) > _MOST_LISTED:
        raise option.wrong(allowed)
    # Each by itself: ClusterShell would look for what several have in common.
    found = (_parsed(values.node_names.__wrapped__, option._replace(value=name), allowed) for name, _ in names)
    return frozenset(node for nodes in found for node in nodes)


def _names_in_list(text: str) -> list[tuple[str, int]] | None:
    """The parts of ``n[1-3],n7``, and how many nodes each names at most; None where brackets do not match. In one pass:
    the text may be long."""
    found, parts, count, width = list[tuple[str, int]](), list[str](), 1, 0
    is_inside = False
    for piece in re.split(r"([\[\],])", text):
        if piece == "," and not is_inside:
            found.append(("".join(parts), count))
            parts, count = [], 1
            continue
        parts.append(piece)
        if piece in ("[", "]"):
            if is_inside != (piece == "]"):
                return None
            count, width, is_inside = min(_MOST, count * (width if is_inside else 1)), 0, not is_inside
        elif is_inside and piece != ",":
            width += _width(piece)
    found.append(("".join(parts), count))
    return None if is_inside else found


def _width(listed: str) -> int:
    """How many numbers ``1-3`` has, at most; 1 for ``7``."""
    last = listed.partition("-")[2]
    return int(last) + 1 if last.isdecimal() and len(last) < 10 else _MOST if last else 1


def _parsed(parse: Callable[[str], _Value], option: GivenOption, allowed: str) -> _Value:
    try:
        return parse(option.value)
    except ParseError:
        raise option.wrong(allowed) from None


def _comment(given: BatchOptions, option: GivenOption) -> BatchOptions:
    return replace(given, comment=option.value[:1000])


def _exclusive(given: BatchOptions, option: GivenOption) -> BatchOptions:
    """``--exclusive=user`` shares nodes, which is not modeled."""
    return replace(given, exclusive=option.value == "")


def _as(field: str, read: Callable[[GivenOption], object]) -> Callable[[BatchOptions, GivenOption], BatchOptions]:
    return lambda given, option: replace(given, **{field: read(option)})  # type: ignore[arg-type]


_READ: Mapping[str, Callable[[BatchOptions, GivenOption], BatchOptions]] = {
    "account": _as("account", _word),
    "clusters": _as("clusters", _names),
    "comment": _comment,
    "constraint": _as("features", lambda option: option.value[:1000]),
    "cpus-per-task": _as("cpus_per_task", _whole),
    "exclude": _as("excluded_nodes", _node_names),
    "exclusive": _exclusive,
    "gpus": _as("job_gres", lambda option: _gres(option, "gpu:")),
    "gpus-per-node": lambda given, option: replace(
        given, gres=values.pairs({**dict(given.gres), **dict(_gres(option, "gpu:"))})
    ),
    "gpus-per-task": _as("task_gres", lambda option: _gres(option, "gpu:")),
    "gres": _as("gres", _gres),
    "job-name": _as("name", lambda option: option.value[:1000]),
    "licenses": _as("licenses", lambda option: values.license_counts(option.value[:1000])),
    "mem": _as("memory_per_node", _memory),
    "mem-per-cpu": _as("memory_per_cpu", _memory),
    "mincpus": _as("cpus_per_node", _whole),
    "no-requeue": lambda given, _: replace(given, requeue=False),
    "nodelist": _as("required_nodes", _node_names),
    "nodes": _nodes,
    "ntasks": _as("tasks", _whole),
    "ntasks-per-node": _as("tasks_per_node", _whole),
    "partition": _as("partitions", _names),
    "qos": _as("qos", _word),
    "requeue": lambda given, _: replace(given, requeue=True),
    "reservation": _as("reservation", lambda option: option.value[:1000]),
    "time": _as("limit", _time),
}

_DO_NOT_MATTER = frozenset(
    {
        *("acctg-freq", "bbf", "chdir", "container", "cpu-freq", "delay-boot", "distribution", "error", "export"),
        *("export-file", "get-user-env", "gid", "gpu-bind", "gpu-freq", "gres-flags", "help", "ignore-pbs", "input"),
        *("kill-on-invalid-dep", "mail-type", "mail-user", "mem-bind", "network", "no-kill", "open-mode", "output"),
        *("parsable", "power", "profile", "propagate", "quiet", "signal", "test-only", "uid", "usage", "verbose"),
        *("version", "wait", "wait-all-nodes", "wckey", "wrap"),
    }
)
