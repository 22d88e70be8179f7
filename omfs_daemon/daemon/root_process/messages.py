"""What omfsd may ask of its root process, and the answers: strict, because omfsd is the less trusted side."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from omfs_daemon.daemon.node_client.node_answers import OmfsNodeAnswer
from omfs_daemon.errors import OmfsError

MOST_BYTES = 1 << 20
"""Of one request; 10,000 names of nodes take a fifth of that."""

_Seconds = Annotated[float, Field(gt=0, le=3600)]


class RootProcessError(OmfsError):
    """The root process refused a request or has ended."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class HelloRequest(_Message):
    """Whether the root process serves an omfsd of this version."""

    do: Literal["hello"]
    version: str


class JobWorkRequest(_Message):
    """Work on the nodes of a job (``job``: its raw id), as in ``NodeWork``; its owner is read from slurmctld."""

    do: Literal["out", "in", "look"]
    job: Annotated[int, Field(gt=0, lt=1 << 32)]
    method: str
    nodes: tuple[str, ...]
    timeout: _Seconds
    resume: bool = False
    suspended: bool = False


class ProbeRequest(_Message):
    """What the nodes can do, and have room for."""

    do: Literal["probe"]
    nodes: tuple[str, ...]
    timeout: _Seconds


class WakeFilesRequest(_Message):
    """Give the wake files to SlurmUser."""

    do: Literal["give_wake_files"]


class QuestionRequest(_Message):
    """Ask Slurm whether it would start a waiting job on these nodes; all else about the job is read from slurmctld."""

    do: Literal["ask"]
    job: Annotated[int, Field(gt=0, lt=1 << 32)]
    nodes: tuple[str, ...]


class ReloadRequest(_Message):
    """Read the options of the methods from the configuration file anew."""

    do: Literal["reload"]


RootRequest = HelloRequest | JobWorkRequest | ProbeRequest | WakeFilesRequest | QuestionRequest | ReloadRequest

SLURM = "slurm"
"""The key of Slurm's answer to a question among the answers: its ``message`` is as ``put_question`` returns it."""

_REQUEST: TypeAdapter[RootRequest] = TypeAdapter(Annotated[RootRequest, Field(discriminator="do")])
_ANSWERS = TypeAdapter(dict[str, OmfsNodeAnswer])


def request_bytes(request: RootRequest) -> bytes:
    return request.model_dump_json().encode()


def read_root_request(text: bytes) -> RootRequest:
    """RootProcessError if it is anything but a request."""
    if len(text) > MOST_BYTES:
        raise RootProcessError(f"more than {MOST_BYTES} bytes")
    try:
        return _REQUEST.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise RootProcessError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def reply_bytes(answers: Mapping[str, OmfsNodeAnswer], refusal: str = "") -> bytes:
    """``refusal``: why nothing was done, "" if it was."""
    return json.dumps({"refusal": refusal, "answers": answers}, default=_plain).encode()


def read_reply(text: bytes) -> dict[str, OmfsNodeAnswer]:
    """The nodes' answers, none where no node was asked; RootProcessError with the refusal, or if there is no reply."""
    if not text:
        raise RootProcessError("the root process has ended: restart omfsd")
    reply = json.loads(text)
    if reply["refusal"]:
        raise RootProcessError(reply["refusal"])
    return _ANSWERS.validate_python(reply["answers"])


def _plain(value: object) -> object:
    """For json: an OmfsNodeAnswer and its parts."""
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"no part of an answer: {value!r}")
