"""JSON in files of ours, which may be damaged in any way."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: bytes | str) -> Any:
    """ValueError for what is no JSON, is nested too deeply, or has a number of too many digits."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
