"""A class of jobs in the configuration file; the options of real-time classes: docs/real-time.md."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from omfs_daemon.config.section import Section
from omfs_daemon.config.value_types import Slowdown, Switch, Text, Weight
from omfs_daemon.policy.rules.realtime_terms import CostWeights, RealtimeTerms
from omfs_daemon.policy.rules.slowdown_laws import CATEGORIES, VICTIM_MAX_SLOWDOWN
from omfs_daemon.protocol.job_comment import NO_SIGNAL, SIGNALS, is_signal

Category = Literal["narrow-short", "narrow-long", "wide-short", "wide-long"]

REALTIME_KEYS = frozenset({"slowdown_bound", "act_at", "victim_max_slowdown", "weights"})
"""The options that only real-time classes have."""

_ACT_AT = 1.1
_CATEGORY_NAMES: tuple[Category, ...] = ("narrow-short", "narrow-long", "wide-short", "wide-long")
_VICTIM_MAX = dict(zip(CATEGORIES, VICTIM_MAX_SLOWDOWN, strict=True))


def _one_for_all(value: object) -> object:
    if isinstance(value, dict):
        return value
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number or not 1 <= float(value) < float("inf"):  # type: ignore[arg-type]
        raise ValueError("must be a number of at least 1, or a table by category")
    return dict.fromkeys(_CATEGORY_NAMES, value)


class WeightsSection(Section):
    """Exponents of the factors of a victim's cost; 0 switches a factor off."""

    slowdown: Weight = Field(1.0, description="Of log2(2 + its slowdown).", examples=[2.0])
    checkpoint: Weight = Field(1.0, description="Of 1 + (seconds to preempt, resume, and repeat) / 900.", examples=[0])
    remaining: Weight = Field(1.0, description="Of 5 for a job that is nearly done, else 1.", examples=[0])


class ClassSection(Section):
    """A class of jobs. The first class that matches a job counts; a list that is left out matches every job."""

    name: Text = Field(description="The name that `omfs why` and the log use.", examples=["urgent"])
    partition: tuple[Text, ...] = Field((), description="Partitions of the class.", examples=[["urgent", "alarm"]])
    qos: tuple[Text, ...] = Field((), description="QOS of the class.", examples=[["urgent"]])
    account: tuple[Text, ...] = Field((), description="Accounts of the class.", examples=[["weather"]])
    urgent: Switch = Field(
        False,
        description="Start before all others, if necessary by preempting regular jobs; never preempted themselves.",
        examples=[True],
    )
    realtime: Switch = Field(
        False,
        description="Preempt the cheapest jobs for a job once its slowdown reaches act_at; never preempted themselves.",
        examples=[True],
    )
    slowdown_bound: Slowdown = Field(
        1.2,
        description="Real-time: the slowdown that users are promised; `omfs why` shows it beside that of a job.",
        examples=[1.5],
    )
    act_at: Annotated[dict[Category, Slowdown], BeforeValidator(_one_for_all)] = Field(
        dict.fromkeys(_CATEGORY_NAMES, _ACT_AT),
        description="Real-time: the slowdown from which jobs are preempted for a job; or a table by category.",
        examples=[{"wide-short": 1.2, "wide-long": 1.15}],
    )
    victim_max_slowdown: dict[Category, Slowdown] = Field(
        {"narrow-short": 1.5, "narrow-long": 1.5, "wide-short": 17.31, "wide-long": 4.77},
        description="Real-time: by category, the slowdown above which a regular job is not preempted.",
        examples=[{"narrow-short": 2.0}],
    )
    weights: WeightsSection = Field(
        default_factory=WeightsSection,
        description="Real-time: exponents of the factors of a victim's cost: slowdown, checkpoint, remaining.",
        examples=[{"remaining": 0}],
    )

    methods: tuple[str, ...] | None = Field(
        None,
        description="Methods that users may choose for their jobs (omfs:method=NAME in the comment). "
        "Default: all that are installed.",
        examples=[["suspend"]],
    )
    default: tuple[str, ...] = Field(
        (),
        description="Methods for jobs that choose none, best first. Empty: they are never preempted.",
        examples=[["requeue"]],
    )
    when_preemption_fails: Literal["leave", "requeue"] = Field(
        "leave",
        description='If no method of a job can preempt it: "leave" it running, or "requeue" it and lose its work.',
        examples=["requeue"],
    )

    signal: str = Field(
        "",
        description="Signal that warns a job before it is requeued, for programs that save their work on it (else they "
        'end): "USR2" to its steps, "B:USR2" to its batch shell. It then has its preempt_timeout_seconds.',
        examples=["USR2"],
    )

    @field_validator("signal")
    @classmethod
    def _is_a_signal(cls, name: str) -> str:
        if name and (not is_signal(name) or name == NO_SIGNAL):
            raise ValueError(f"must be one of {', '.join(SIGNALS)}, after B: for the batch shell alone")
        return name

    @property
    def is_first(self) -> bool:
        """Whether others are preempted for its jobs, whatever their account uses, and they never are."""
        return self.urgent or self.realtime

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.urgent and self.realtime:
            raise ValueError("a class is urgent (at once) or real-time (within a bound), not both")
        word = "urgent" if self.urgent else "real-time"
        article = "an urgent" if self.urgent else "a real-time"
        if self.is_first and not (self.partition or self.qos or self.account):
            raise ValueError(f"{article} class needs partition, qos or account: else every job would be {word}")
        if self.is_first and self.model_fields_set & {"methods", "default"}:
            raise ValueError(f"{article} class has no methods and no default: {word} jobs are never preempted")
        if self.is_first and "when_preemption_fails" in self.model_fields_set:
            raise ValueError(f"{article} class has no when_preemption_fails: {word} jobs are never preempted")
        if self.is_first and "signal" in self.model_fields_set:
            raise ValueError(f"{article} class has no signal: {word} jobs are never preempted")
        given = sorted(self.model_fields_set & (REALTIME_KEYS))
        if given and not self.realtime:
            raise ValueError(f"{given[0]} is for real-time classes: set realtime = true")
        above = [(at, name) for name, at in self._act_at().items() if at > self.slowdown_bound]
        if above:
            at, name = above[0]
            raise ValueError(f"slowdown_bound = {self.slowdown_bound:g} must not be below act_at = {at:g} of {name}")
        if self.methods is not None and (alien := [name for name in self.default if name not in self.methods]):
            raise ValueError(f"default {alien[0]!r} is not among its methods: {', '.join(self.methods)}")
        return self

    def _act_at(self) -> dict[Category, float]:
        return {name: self.act_at.get(name, _ACT_AT) for name in _CATEGORY_NAMES}

    @property
    def realtime_terms(self) -> RealtimeTerms | None:
        """What the policy needs; None for other classes."""
        if not self.realtime:
            return None
        most = {**_VICTIM_MAX, **{str(name): at for name, at in self.victim_max_slowdown.items()}}
        weights = CostWeights(self.weights.slowdown, self.weights.checkpoint, self.weights.remaining)
        return RealtimeTerms(
            self.slowdown_bound, tuple(self._act_at().values()), tuple(most[name] for name in CATEGORIES), weights
        )
