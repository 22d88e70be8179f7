"""What the holder of a lease says about itself (``holder.EPOCH`` in the shared directory)."""

from __future__ import annotations

import hashlib
import json
import os
from typing import NamedTuple

from omfs_daemon import __version__
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.store.json_text import read_json
from omfs_daemon.errors import OmfsError

HOLDER_FORMAT = 1
LONGEST_HOLDER = 4096
"""Bytes that are read."""

_OF_THIS_HOST = {"daemon", "metrics", "slurm"}
"""Tables in which two hosts may differ, but for ``daemon.dry_run``."""


class LeaseHolder(NamedTuple):
    """``configuration``: a digest of what decisions about jobs go by, without defaults, of which a newer version may
    have more. ``daemon``: which omfsd of this host, "" of one of an earlier version."""

    host: str
    version: str
    configuration: str
    daemon: str = ""

    def text(self) -> str:
        return json.dumps({"format": HOLDER_FORMAT, **self._asdict()}) + "\n"


def own_holder(config: Config, host: str) -> LeaseHolder:
    """What an omfsd with this configuration says about itself. Two on one host have their own state directories."""
    return LeaseHolder(host, __version__, configuration_digest(config), _digest(os.fsencode(config.daemon.state_dir)))


def configuration_digest(config: Config) -> str:
    rest = config.model_dump(mode="json", by_alias=True, exclude=_OF_THIS_HOST, exclude_defaults=True)
    return _digest(json.dumps([rest, config.daemon.dry_run], sort_keys=True).encode())


def _digest(of: bytes) -> str:
    return hashlib.blake2b(of, digest_size=16).hexdigest()


def holder_of(text: str, name: str) -> LeaseHolder:
    """OmfsError for what no holder has written; ``name``: of the file."""
    try:
        found = read_json(text)
        number, fields = found.pop("format"), {key: found[key] for key in ("host", "version", "configuration")}
        fields["daemon"] = found.get("daemon", "")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise OmfsError(f"{name}: is damaged: remove it") from None
    if number != HOLDER_FORMAT:
        raise OmfsError(f"{name}: format {str(number)[:20]}; this version reads {HOLDER_FORMAT}: install the other one")
    if not all(isinstance(value, str) and value.isprintable() and len(value) < 300 for value in fields.values()):
        raise OmfsError(f"{name}: is damaged: remove it")
    return LeaseHolder(**fields)


def unlike(own: LeaseHolder, last: LeaseHolder | None, name: str) -> str:
    """Why this daemon must not take over from ``last``, of which ``name`` tells; "" if it may. The last one itself,
    restarted, goes by what its operator has changed."""
    if last is None or own.configuration == last.configuration:
        return ""
    if last.daemon and (own.host, own.daemon) == (last.host, last.daemon):
        return ""
    return (
        f"the configuration differs from that of the last active omfsd, on {last.host}: make them the same and reload, "
        f"or remove {name} to go by this one"
    )
