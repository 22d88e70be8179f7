"""What is read from the configuration only when omfsd starts."""

from __future__ import annotations

from omfs_daemon.config.schema import Config

ONLY_AT_START = (
    ("daemon", "user"),
    ("daemon", "state_dir"),
    ("daemon", "run_dir"),
    ("daemon", "shared_directory"),
    ("daemon", "operators_group"),
    ("daemon", "login_address"),
    ("daemon", "log_format"),
    ("daemon", "log_level"),
    ("slurm", "gateway"),
    ("slurm", "conf"),
    ("slurm", "timeout_seconds"),
    ("metrics", "enabled"),
    ("metrics", "address"),
    ("metrics", "port"),
    ("predict", "enabled"),
    ("predict", "predictor"),
    ("predict", "learn_days"),
    ("predict", "max_jobs"),
    ("predict", "keep_names"),
    ("predict", "use_for_victims"),
    ("predict", "keys"),
    ("nodes", "worker"),
    ("nodes", "command"),
    ("nodes", "fanout"),
    ("nodes", "probe_seconds"),
)
"""Read only at start; a reload that would change one of these is refused as a whole."""


def changed_at_start(old: Config, new: Config) -> list[str]:
    """The keys that a reload cannot change."""
    before, after = old.model_dump(), new.model_dump()
    return [f"{section}.{name}" for section, name in ONLY_AT_START if before[section][name] != after[section][name]]
