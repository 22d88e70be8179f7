"""What is known of a job when it is submitted, as predictors use it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from math import inf

_DIGITS = re.compile("[0-9]+")
_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class JobFeatures:
    """Names are text of hostile users: predictors only compare them.

    command  the job's name as given
    name     the same with digits folded (``folded_name``)
    limit    seconds; inf: none
    hour     of its submission, 0 to 23
    """

    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    command: str = ""
    name: str = ""
    cpus: int = 1
    nodes: int = 1
    gres: str = ""
    limit: float = inf
    hour: int = 0


FEATURES = frozenset(JobFeatures.__slots__)
"""By which of them jobs can be told apart."""


def folded_name(name: str) -> str:
    """The name with each run of digits as one ``#``: ``run_017`` and ``run_18`` are ``run_#``."""
    return _DIGITS.sub("#", name)


def stored_name(name: str, keep_names: bool = False) -> str:
    """What is kept of a name: 16 hexadecimal digits that equal names share; with ``keep_names`` its first 200
    characters, those that are not printable replaced."""
    if keep_names:
        return "".join(character if character.isprintable() else "?" for character in name[:_MOST_CHARACTERS])
    return blake2b(name.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def all_alike(job: JobFeatures) -> object:
    """The one key of all jobs."""
    return None
