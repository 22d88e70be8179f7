"""What slurm.conf says about MUNGE."""

from __future__ import annotations

import os
import re
from pathlib import Path

_DEFAULT_CONF = Path("/etc/slurm/slurm.conf")


def needs_munge(conf: Path | None) -> bool:
    """Whether Slurm's programs know each other by MUNGE, which is the default."""
    return _value(_text_of(conf), "AuthType") in ("", "auth/munge")


def munge_socket(conf: Path | None) -> str | None:
    """munged's, if it is not where libmunge expects it."""
    found = re.search(r"(?:^|,)socket=([^,]+)", _value(_text_of(conf), "AuthInfo"))
    return found[1] if found else None


def _text_of(conf: Path | None) -> str:
    """ "" for a file that cannot be read: then the defaults hold, or Slurm gets its configuration from elsewhere."""
    try:
        return (conf or Path(os.environ.get("SLURM_CONF") or _DEFAULT_CONF)).read_text(errors="replace")
    except OSError:
        return ""


def _value(text: str, name: str) -> str:
    """Names in slurm.conf are not case-sensitive."""
    found = re.search(rf"(?im)^[^\S\n]*{name}[^\S\n]*=[^\S\n]*([^\s#]+)", text)
    return found[1] if found else ""
