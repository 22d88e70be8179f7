"""The table ``[predict]``."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from omfs_daemon.config.section import Section
from omfs_daemon.config.value_types import Count, SomeCount, Switch, Text
from omfs_daemon.errors import ConfigError
from omfs_daemon.predict.ladder import RUNGS
from omfs_daemon.predict.predictor_table import new_predictor


class PredictSection(Section):
    """Learning run times from ended jobs. Predictions inform; they order victims only with use_for_victims
    (docs/predictions.md)."""

    enabled: Switch = Field(
        True, description="Whether run times are learned, and starts are estimated.", examples=[False]
    )
    predictor: Text = Field(
        "similar",
        description='How: "limit", "mean", "murata", "last2", "alike2", "named2", "similar", "ladder", or "gbm".',
        examples=["last2"],
    )
    learn_days: Count = Field(
        90, description="How many days of accounting are read at the first start. 0: none.", examples=[365]
    )
    max_jobs: SomeCount = Field(
        1_000_000, description="How many ended jobs are kept at most; the oldest go.", examples=[100_000]
    )
    keep_names: Switch = Field(
        False, description="Whether names of jobs are kept as they are; else as hashes.", examples=[True]
    )
    use_for_victims: Switch = Field(
        False,
        description="Whether victims are ordered by predicted remaining times instead of what their time limits leave.",
        examples=[True],
    )
    keys: tuple[tuple[Text, ...], ...] = Field(
        RUNGS,
        description='By what jobs are alike to "ladder" alone, the most special first; after the last come all jobs.',
        examples=[[["user", "name"], ["user"], ["partition", "limit"]]],
    )

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        try:
            new_predictor(self.predictor, self.keys)
        except ConfigError as error:
            raise ConfigError(f"predict: {error}") from None
        if self.use_for_victims and self.predictor == "limit":
            raise ConfigError('predict: use_for_victims needs a predictor that learns: "limit" does not')
        return self
