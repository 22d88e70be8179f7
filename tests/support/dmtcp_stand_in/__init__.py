"""A stand-in for DMTCP, which is packaged for no current Debian: its commands as scripts, with its quirks.

It really checkpoints programs that cooperate (``programs/``, by ``programs/cooperate.py``), so that tests prove that
work goes on where it stopped; as in DMTCP, ended children are lost unless the plug-in for them is loaded, for which a
file in ``lib`` stands. Under real DMTCP the same programs run unchanged, and nobody cooperates. Which release it
imitates and what goes wrong is set by ``install``, or by the environment: ``STAND_IN_DMTCP`` (2.6.0, 3.0.0, 4.2.0, 5.0)
and ``STAND_IN_FAULT`` (names from ``FAULTS``, with commas between).
"""

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"

FAULTS = {
    "refuse": "checkpoints are refused for ever, with the text and exit code of an accepted one",
    "refuse_once": "the same for the first one",
    "disk_full": "the disk is full half-way through the image: the job dies with 99, *.dmtcp.temp is left",
    "coordinator_dies": "the coordinator is killed when a checkpoint is asked for: the job dies with 99",
    "hang_checkpoint": "processes stop for the checkpoint and never write",
    "hang_command": "dmtcp_command answers nothing but --version",
    "hang_version": "--version is never answered",
    "killed": "the program is killed without a checkpoint, as by another user's dmtcp_command -k: exit 0",
    "finishes": "the program ends by itself when a checkpoint has begun, with STAND_IN_FINISHES_WITH (default 0)",
    "first_finishes": "the same for the program's first process; the others are checkpointed",
    "late": "the coordinator answers nothing for four seconds when a checkpoint is asked for, and then takes it",
    "silent": "the coordinator does not tell what it does",
    "no_coordinator": "a coordinator that is started by itself ends at once",
    "no_script": "the restart script is never written",
    "late_script": "the restart script comes two seconds after the program has gone",
    "temp_left": "one image is not renamed",
    "image_missing": "one image vanishes",
    "slow": "each image takes a second",
    "waits": "processes stop for the checkpoint and write only when this fault is taken from the settings",
    "restart_99": "the restart fails with 99",
}


def install(directory: Path, version: str = "4.2.0", fault: str = "") -> Path:
    """Copy the stand-in to ``directory``, for any user to run, and return the directory of its commands."""
    unknown = {name for name in fault.split(",") if name} - set(FAULTS)
    if unknown:
        raise ValueError(f"no such fault: {', '.join(sorted(unknown))}")
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    for name in ("bin", "programs"):
        target = directory / name
        target.mkdir(exist_ok=True)
        target.chmod(0o755)
        for source in (HERE / name).iterdir():
            if source.is_file():
                copy = Path(shutil.copyfile(source, target / source.name))
                if name == "bin" and not source.suffix:
                    copy.write_text(copy.read_text().replace("#!/usr/bin/env python3", f"#!{python}", 1))
                copy.chmod(0o755)
    library = directory / "lib" / "omfs_children.so"  # cooperate.py does what the plug-in does
    library.parent.mkdir(exist_ok=True)
    library.parent.chmod(0o755)
    library.write_text("stands for the plug-in\n")
    library.chmod(0o644)
    settings = directory / "bin" / "stand_in.json"
    settings.write_text(json.dumps({"version": version, "fault": fault, "programs": str(directory / "programs")}))
    settings.chmod(0o644)
    return directory / "bin"
