"""The base of all tables in the configuration file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of all tables: no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
