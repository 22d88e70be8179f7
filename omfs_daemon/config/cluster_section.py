"""Another cluster of the site in the configuration file."""

from __future__ import annotations

from pydantic import Field

from omfs_daemon.config.section import Section
from omfs_daemon.config.value_types import AbsolutePath, SlurmName


class ClusterSection(Section):
    """Another cluster of the site, for `omfs where`. Without any: all clusters in the same slurmdbd."""

    name: SlurmName = Field(description="The name by which `omfs where` calls it.", examples=["vector"])
    conf: AbsolutePath = Field(description="Its slurm.conf on this host.", examples=["/etc/slurm/vector/slurm.conf"])
