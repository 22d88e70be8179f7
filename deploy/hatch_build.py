"""What a site needs besides the package itself, for wheel and sdist (a build hook of Hatchling).

In the wheel below share/: manual pages, shell completions, and in omfs/ the sources of the plug-ins, systemd's units,
the sample configuration, and rules and dashboards for Prometheus and Grafana. The sdist has the sources of all these,
and the manual pages below man/.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED = {
    "plugins": "share/omfs/plugins",
    "systemd": "share/omfs/systemd",
    "deploy/prometheus": "share/omfs/prometheus",
    "deploy/grafana/dashboards": "share/omfs/grafana/dashboards",
    "deploy/grafana/provisioning": "share/omfs/grafana/provisioning",
    "docs/omfs.toml": "share/omfs/omfs.toml",
}


class SiteFiles(BuildHookInterface[Any]):
    """Adds the files; an editable installation is for the clone, which has them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        made = root / "build" / "site"
        for maker in ("deploy.manual", "deploy.completions"):
            target = made / ("man" if maker == "deploy.manual" else "completions")
            subprocess.run([sys.executable, "-m", maker, str(target)], cwd=root, check=True, timeout=300)
        if self.target_name == "sdist":
            build_data["force_include"][str(made / "man")] = "man"
            return
        shared = build_data["shared_data"]
        shared[str(made / "man")] = "share/man"
        shared[str(made / "completions")] = "share"
        for source, target in SHARED.items():
            if (root / source).exists():
                shared[str(root / source)] = target
