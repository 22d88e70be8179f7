"""Has snakemake run two jobs on Slurm, which wait for a file; prints the numbers of those that it takes for done.

Usage: snakemake_client.py FOLDER METHOD
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

WORKFLOW = """
rule all:
    input: "done-0", "done-1"

rule wait:
    output: "done-{{number}}"
    resources: mem_mb=500, runtime=60, slurm_account="bio", slurm_extra="--omfs-method={method}"
    shell: "touch started-{{wildcards.number}}-$(date +%s%N); while [ ! -e end ]; do sleep 0.1; done; touch {{output}}"
"""


def main() -> None:
    folder, method = Path(sys.argv[1]), sys.argv[2]
    (folder / "Snakefile").write_text(WORKFLOW.format(method=method))
    options = ["--executor=slurm", "--jobs=2", "--slurm-init-seconds-before-status-checks=2", "--latency-wait=30"]
    subprocess.run([sys.executable, "-m", "snakemake", *options], cwd=folder, stdout=sys.stderr, check=True)
    print(json.dumps([number for number in (0, 1) if (folder / f"done-{number}").exists()]))


main()
