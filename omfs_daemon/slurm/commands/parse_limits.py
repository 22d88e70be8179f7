"""Parse what limits starts: ``scontrol show assoc_mgr``, reservations, licenses, and the flags of QOS. Pure and strict.

In assoc_mgr each limit that Slurm counts against is printed as ``limit(used)``, "N" where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from omfs_daemon.cluster.limits import (
    Association,
    AssociationKey,
    Limit,
    Qos,
    RunningLimits,
    SiteLicense,
    SiteReservation,
    UsageLimits,
)
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.parse_cluster import fields_of_line, printed_lines

_SHOWN = 160
_MINUTE = 60.0
_LIMIT = re.compile(r"(N|\d+(?:\.\d+)?)\((\d+(?:\.\d+)?)\)")
_NAMED = re.compile(r"(?P<name>.*?)(?:\((?P<id>\d+)\))?", re.DOTALL)
_SECTIONS = ("User Records", "Association Records", "QOS Records")
# They do not keep a job that was accepted from starting.
_HARMLESS = frozenset(
    {"GrpJobsAccrue", "GrpSubmitJobs", "MaxJobsAccrue", "MaxSubmitJobs", "MaxJobsAccruePA", "MaxSubmitJobsPA"}
    | {"MaxJobsAccruePU", "MaxSubmitJobsPU"}
)
_MEGABYTE = 1024**2
_NONE = ("", "N", "(null)")


class AssociationManager(NamedTuple):
    """What slurmctld knows of slurmdbd's limits."""

    associations: dict[AssociationKey, Association]
    qos: dict[str, Qos]


class QosFlags(NamedTuple):
    """What only slurmdbd shows of a QOS."""

    flags: frozenset[str]
    has_usage_threshold: bool


@dataclass(slots=True)
class _Block:
    """The lines of one association or QOS. ``per_user``, ``per_account``: the limits under these titles, by name."""

    fields: dict[str, str]
    per_user: dict[str, dict[str, str]] = field(default_factory=dict)
    per_account: dict[str, dict[str, str]] = field(default_factory=dict)


def parse_association_manager(printed: str) -> AssociationManager:
    """``scontrol show assoc_mgr``."""
    sections = _sections(printed)
    associations: dict[AssociationKey, Association] = {}
    for block in _blocks(sections["Association Records"], "ClusterName="):
        found = _association(block)
        associations[(found.account, found.user, found.partition)] = found
    levels = [_qos(block) for block in _blocks(sections["QOS Records"], "QOS=")]
    return AssociationManager(associations, {level.name: level for level in levels})


def parse_qos_flags(printed: str) -> dict[str, QosFlags]:
    """``sacctmgr -n -P show qos format=Name,Flags,UsageThres``."""
    found = {}
    for line in printed.splitlines():
        words = line.split("|")
        if len(words) != 3:
            raise ParseError(f"sacctmgr: not a QOS: {line[:_SHOWN]!r}")
        found[words[0]] = QosFlags(frozenset(filter(None, words[1].split(","))), bool(words[2]))
    return found


def with_flags(levels: Mapping[str, Qos], flags: Mapping[str, QosFlags]) -> dict[str, Qos]:
    """The QOS with what only slurmdbd shows; one that it does not know yet stays without."""
    return {
        name: replace(level, flags=flags[name].flags, has_usage_threshold=flags[name].has_usage_threshold)
        if name in flags
        else level
        for name, level in levels.items()
    }


def parse_reservations(printed: str) -> tuple[SiteReservation, ...]:
    """``scontrol -o show reservations``."""
    lines = printed_lines(printed, "No reservations in the system")
    return tuple(_reservation(fields_of_line(line, "ReservationName")) for line in lines)


def parse_site_licenses(printed: str) -> dict[str, SiteLicense]:
    """``scontrol -o show licenses``."""
    found = {}
    for line in printed_lines(printed, "No licenses configured in Slurm."):
        fields = fields_of_line(line, "LicenseName")
        try:
            total, reserved = values.whole(fields["Total"]), values.whole(fields.get("Reserved", "0"))
            found[fields["LicenseName"]] = SiteLicense(total, reserved, fields.get("Remote", "no") != "no")
        except KeyError as error:
            raise ParseError(f"scontrol show licenses {fields.get('LicenseName')}: no {error}") from None
    return found


def _reservation(fields: dict[str, str]) -> SiteReservation:
    try:
        start, end = values.epoch(fields["StartTime"]), values.epoch(fields["EndTime"])
        if start is None or end is None:
            raise ParseError(f"scontrol show reservation {fields['ReservationName']}: no times")
        return SiteReservation(
            name=fields["ReservationName"],
            start=start,
            end=end,
            nodes=frozenset(values.node_names(fields["Nodes"])),
            users=frozenset(values.names(fields.get("Users", ""))),
            accounts=frozenset(values.names(fields.get("Accounts", ""))),
            flags=frozenset(values.names(fields.get("Flags", ""))),
        )
    except KeyError as error:
        raise ParseError(f"scontrol show reservation {fields.get('ReservationName')}: no {error}") from None


# -- scontrol show assoc_mgr -------------------------------------------------------------------------
def _sections(printed: str) -> dict[str, list[str]]:
    """The lines under each title; slurmctld leaves out the sections of what it has none of."""
    found: dict[str, list[str]] = {title: [] for title in _SECTIONS}
    if not printed.startswith("Current Association Manager state"):
        raise ParseError(f"scontrol show assoc_mgr: {printed[:_SHOWN]!r}")
    lines: list[str] | None = None
    for line in printed.splitlines()[1:]:
        if line.strip() in found:
            lines = found[line.strip()]
        elif line.strip() and lines is not None:
            lines.append(line)
    return found


def _blocks(lines: list[str], first: str) -> Iterator[_Block]:
    block: _Block | None = None
    titled: dict[str, dict[str, str]] | None = None
    here: dict[str, str] = {}
    for line in lines:
        if line.startswith(first):
            if block is not None:
                yield block
            block, titled = _Block(here := {}), None
        elif block is None:
            continue
        elif line.strip() in ("Account Limits", "User Limits"):
            titled = block.per_account if line.strip() == "Account Limits" else block.per_user
            continue
        elif line.strip() in ("No Accounts", "No Users"):
            continue
        elif titled is not None and "=" not in line:
            here = titled.setdefault(line.strip(), {})
            continue
        here.update(_pairs(line))
    if block is not None:
        yield block


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    for word in line.split():
        name, is_pair, value = word.partition("=")
        if is_pair:
            yield name, value


def _association(block: _Block) -> Association:
    fields = block.fields
    try:
        user, parent = _NAMED.fullmatch(fields["UserName"]), _NAMED.fullmatch(fields["ParentAccount"])
        return Association(
            account=fields["Account"],
            user=user["name"] if user else "",
            partition=fields["Partition"],
            parent=parent["name"] if parent else "",
            own_jobs=_most(fields["MaxJobs"]),
            limits=_limits(fields, {"MaxJobs"}),
        )
    except KeyError as error:
        raise ParseError(f"scontrol show assoc_mgr: account {fields.get('Account')}: no {error}") from None


def _qos(block: _Block) -> Qos:
    fields = block.fields
    try:
        named = _NAMED.fullmatch(fields["QOS"])
        by_user = {values.whole(_id(uid)): _running(found, "PU") for uid, found in block.per_user.items()}
        by_account = {account: _running(found, "PA") for account, found in block.per_account.items()}
        return Qos(named["name"] if named else "", _limits(fields, set()), by_user, by_account)
    except KeyError as error:
        raise ParseError(f"scontrol show assoc_mgr: QOS {fields.get('QOS')}: no {error}") from None


def _id(printed: str) -> str:
    """The uid of ``65534`` or ``nobody(65534)``."""
    named = _NAMED.fullmatch(printed)
    return (named["id"] or named["name"]) if named else printed


def _running(fields: dict[str, str], whose: str) -> RunningLimits:
    jobs, tres = f"MaxJobs{whose}", f"MaxTRES{whose}"
    return RunningLimits(_most(fields[jobs]), _tres(fields[tres]), _not_modeled(fields, {jobs, tres}))


def _limits(fields: Mapping[str, str], known: Set[str]) -> UsageLimits:
    wall, job_wall = _limit(fields["GrpWall"]), _most(fields["MaxWallPJ"])
    known = known | {"GrpJobs", "GrpTRES", "GrpWall", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESPJ", "MinTRESPJ"}
    known |= {"MaxTRESMinsPJ", "MaxWallPJ", "MaxTRESPN"}
    return UsageLimits(
        jobs=_most(fields["GrpJobs"]),
        tres=_tres(fields["GrpTRES"]),
        wall=_times(wall, _MINUTE) if wall else None,
        tres_seconds=_minutes(fields["GrpTRESMins"]),
        running_seconds=_minutes(fields["GrpTRESRunMins"]),
        job_tres=_tres(fields["MaxTRESPJ"]),
        job_least_tres=_tres(fields.get("MinTRESPJ", "")),
        job_tres_seconds={name: int(most * _MINUTE) for name, most in _tres(fields["MaxTRESMinsPJ"]).items()},
        job_wall=None if job_wall is None else job_wall * _MINUTE,
        node_tres=_tres(fields["MaxTRESPN"]),
        not_modeled=_not_modeled(fields, known),
    )


def _not_modeled(fields: Mapping[str, str], known: Set[str]) -> frozenset[str]:
    return frozenset(name for name, value in fields.items() if name not in known and _is_set(name, value))


def _is_set(name: str, value: str) -> bool:
    """Whether this is a limit, and there is one."""
    if not name.startswith(("Grp", "Max", "Min")) or name in _HARMLESS or value in _NONE:
        return False
    if "=" in value:
        return any(part.partition("=")[2].partition("(")[0] not in _NONE for part in value.split(","))
    return value.partition("(")[0] not in _NONE


def _limit(value: str) -> Limit | None:
    """``500(0.00)``; None for "N(0.00)"."""
    found = _LIMIT.fullmatch(value)
    if found is None:
        raise ParseError(f"scontrol show assoc_mgr: not a limit and its use: {value[:_SHOWN]!r}")
    return None if found[1] == "N" else Limit(float(found[1]), float(found[2]))


def _most(value: str) -> int | None:
    """``2(1)``, ``100``, or nothing."""
    number = value.partition("(")[0]
    return None if number in _NONE else values.whole(number)


def _tres(value: str) -> dict[str, int]:
    """``cpu=10(4),mem=N(400)`` or ``cpu=4``: the limits."""
    found = {}
    for entry in filter(None, value.split(",")):
        name, is_pair, number = entry.partition("=")
        if not is_pair:
            raise ParseError(f"scontrol show assoc_mgr: not TRES: {value[:_SHOWN]!r}")
        if (most := _most(number)) is not None:
            found[name] = most * _size(name)
    return found


def _minutes(value: str) -> dict[str, Limit]:
    """``cpu=1000(12),mem=N(0)``: those with a limit, in seconds."""
    found = {}
    for entry in filter(None, value.split(",")):
        name, _, number = entry.partition("=")
        if (limit := _limit(number)) is not None:
            found[name] = _times(limit, _MINUTE * _size(name))
    return found


def _size(name: str) -> int:
    return _MEGABYTE if name == "mem" else 1


def _times(limit: Limit, factor: float) -> Limit:
    return Limit(limit.most * factor, limit.used * factor)
