"""Programs that submit and watch jobs, and what they cannot bear (docs/clients.md)."""

from __future__ import annotations

from typing import NamedTuple


class SubmittingClient(NamedTuple):
    """``excluded``: methods by which its jobs are not preempted, unless their owner names methods: job_submit.lua
    recognizes its jobs and writes them into their comments."""

    name: str
    excluded: tuple[str, ...]


CLIENTS = (SubmittingClient("submitit", ("suspend", "pageout", "ve_swap")),)
"""As in plugins/job_submit.lua. submitit takes SUSPENDED for the end of a job."""


def clients_without(method: str) -> list[str]:
    """The clients for whose jobs the method is excluded by default."""
    return [client.name for client in CLIENTS if method in client.excluded]
