"""Write what completes ``omfs`` in shells: ``python -m deploy.completions DIRECTORY``.

Below DIRECTORY are the paths that the shells search below /usr/share.
"""

from __future__ import annotations

import sys
from pathlib import Path

from typer.completion import get_completion_script

PATHS = {
    "bash": "bash-completion/completions/omfs",
    "zsh": "zsh/site-functions/_omfs",
    "fish": "fish/vendor_completions.d/omfs.fish",
}


def main() -> None:
    for shell, name in PATHS.items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = get_completion_script(prog_name="omfs", complete_var="_OMFS_COMPLETE", shell=shell)
        path.write_text(text.strip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
