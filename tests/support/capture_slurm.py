"""Record what the installed release of Slurm prints.

``python -m tests.support.capture_slurm --out tests/fixtures/slurm``

Brings up private clusters (as root, in a second or two each) and writes ``<release>/<scenario>/<command>.json``. What
names this machine is made neutral; docs/slurm-versions.md tells how to get a machine with another release.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from omfs_daemon.errors import OmfsError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import run_command
from omfs_daemon.slurm.releases import SlurmRelease
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, as_user
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.recorded_slurm import EPOCH, Recorder, write
from tests.support.recording_scenarios import RECORDINGS, RecordingScenario, Stage
from tests.support.waiting import LIMIT

if TYPE_CHECKING:
    from tests.support.accounting_recording import AccountingQuestion

ACCOUNTING = "accounting"
"""The scenario of which accounting is asked, not a gateway."""
_BASE_PORT = 17000
_DAY = 86400
# What says something of the machine or the moment and nothing of Slurm.
_BLURRED = (
    (re.compile(r"(?<=OS=)Linux .*?(?=\s+RealMemory=)"), "Linux"),
    (re.compile(r"(?<=AllocNode:Sid=)\S+"), "head:1"),
    (re.compile(r"(?<=CPULoad=)\S+"), "0.10"),
    (re.compile(r"(?<=FreeMem=)\S+"), "4000"),
    (re.compile(r"(?<=BootTime=)\d+"), str(EPOCH)),
    (re.compile(r"(?<=BOOT_TIME)(\s*=\s*)\S+"), rf"\g<1>{EPOCH}"),
    (re.compile(r"(?<=Configuration data as of )\S+"), str(EPOCH)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record all scenes, or those that are named; 1 if the gateway did not understand an answer."""
    parser = argparse.ArgumentParser(description="Record what this release of Slurm prints.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where <release>/<scenario>/ goes")
    parser.add_argument("scenario", nargs="*", choices=[[], *RECORDINGS, ACCOUNTING], help="all if none is named")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the private cluster ends with us
    try:
        release = SlurmRelease.of(run_command(["slurmctld", "-V"], timeout=LIMIT).stdout)
        names = chosen.scenario or [*RECORDINGS, ACCOUNTING]
        faults = [fault for name in names for fault in record(name, chosen.out / str(release) / name)]
    except OmfsError as error:
        faults = [str(error)]
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    return 1 if faults else 0


def record(name: str, out: Path) -> list[str]:
    """Record one scenario; what was not understood comes back in words and is recorded all the same."""
    return _record_accounting(out) if name == ACCOUNTING else _record_gateway(name, out)


@contextmanager
def _stage(shape: Shape, accounting: Accounting | None) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="omfs-capture-") as directory:
        Path(directory).chmod(0o755)  # jobs run as other users
        with LocalSlurm(Path(directory), shape, accounting=accounting) as slurm:
            yield Stage(slurm)


def _record_gateway(name: str, out: Path) -> list[str]:
    scenario = RECORDINGS[name]
    with _stage(scenario.shape, scenario.accounting) as stage:
        neutral = _neutral(stage.slurm)
        scenario.prepare(stage)
        recorder = Recorder(neutral, as_user(scenario.user) if scenario.user else ())
        faults = list(_ask(name, scenario, stage, CommandGateway(stage.slurm.conf, LIMIT, recorder)))
    write(out, recorder.records, stage.ids)
    return faults


def _record_accounting(out: Path) -> list[str]:
    # Here, for it needs the extra "sim", which a machine that records the others may lack.
    from tests.support import accounting_recording as scenario

    with _stage(scenario.SHAPE, scenario.KNOWN) as stage:
        begin, recorder = int(time.time()) - 1, Recorder(_neutral(stage.slurm))
        scenario.accounted(stage)
        faults = list(_ask_accounting(scenario.ask_accounting(begin, time.time() + 1), stage, recorder))
        hour = scenario.add_up(stage, begin)
        faults += _ask_accounting(scenario.ask_sreport(hour), stage, recorder)
    write(out, recorder.records, stage.ids)
    return faults


def _ask_accounting(questions: Mapping[str, AccountingQuestion], stage: Stage, recorder: Recorder) -> Iterator[str]:
    for what, question in questions.items():
        try:
            question(stage.slurm.conf, recorder)
        except OmfsError as error:
            yield f"{ACCOUNTING}, {what}: {error}"


def _ask(name: str, scenario: RecordingScenario, stage: Stage, gateway: CommandGateway) -> list[str]:
    faults = []
    for what, question in scenario.questions(stage.ids):
        try:
            question(gateway)
        except OmfsError as error:
            if name != "away":
                faults.append(f"{name}, {what}: {error}")
    return faults


def _neutral(slurm: LocalSlurm) -> Callable[[str], str]:
    """What makes text neutral: no host, no directory, no port, no time of this machine."""
    settings = slurm.gateway().settings().values
    host = settings["SlurmctldHost[0]"].partition("(")[0]
    words = {str(slurm.directory): "/cluster", settings["ClusterName"]: "omfs"}
    base, now = int(settings["SlurmctldPort"]), int(time.time())

    def port(match: re.Match[str]) -> str:
        return str(int(match[0]) - base + _BASE_PORT)

    def moment(match: re.Match[str]) -> str:
        seconds = int(match[0])
        return str(seconds - now + EPOCH) if abs(seconds - now) < 400 * _DAY else match[0]

    def neutral(text: str) -> str:
        for old, new in words.items():
            text = text.replace(old, new)
        text = re.sub(rf"\b{re.escape(host)}\b", "head", text)
        text = re.sub(rf"\b(?:{'|'.join(str(base + node) for node in range(slurm.shape.nodes + 1))})\b", port, text)
        text = re.sub(r"\b\d{10}\b", moment, text)
        for pattern, blurred in _BLURRED:
            text = pattern.sub(blurred, text)
        return text

    return neutral


if __name__ == "__main__":
    sys.exit(main())
