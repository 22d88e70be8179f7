"""What the holder of a lease says about itself (``holder.EPOCH`` in the shared directory)."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

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
    have more."""

    host: str
    version: str
    configuration: str

    def text(self) -> str:
        return json.dumps({"format": HOLDER_FORMAT, **self._asdict()}) + "\n"


def configuration_digest(config: Config) -> str:
    rest = config.model_dump(mode="json", by_alias=True, exclude=_OF_THIS_HOST, exclude_defaults=True)
    text = json.dumps([rest, config.daemon.dry_run], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def holder_of(text: str, name: str) -> LeaseHolder:
    """OmfsError for what no holder has written; ``name``: of the file."""
    try:
        found = read_json(text)
        number, fields = found.pop("format"), {key: found[key] for key in LeaseHolder._fields}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise OmfsError(f"{name}: is damaged: remove it") from None
    if number != HOLDER_FORMAT:
        raise OmfsError(f"{name}: format {str(number)[:20]}; this version reads {HOLDER_FORMAT}: install the other one")
    if not all(isinstance(value, str) and value.isprintable() and len(value) < 300 for value in fields.values()):
        raise OmfsError(f"{name}: is damaged: remove it")
    return LeaseHolder(**fields)


def unlike(own: LeaseHolder, last: LeaseHolder | None, name: str) -> str:
    """Why this daemon must not take over from ``last``, of which ``name`` tells; "" if it may."""
    if last is None or own.configuration == last.configuration:
        return ""
    return (
        f"the configuration differs from that of the last active omfsd, on {last.host}: make them the same and reload, "
        f"or remove {name} to go by this one"
    )
