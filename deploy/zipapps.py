"""Build omfs-run and omfs-node, each one file for nodes that have nothing but Python 3.6 or later.

python3 deploy/zipapps.py [DIRECTORY [INTERPRETER]]     build/ and "/usr/bin/env python3" if not given
"""

from __future__ import annotations

import re
import sys
import tempfile
import zipapp
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "omfs_daemon"
PROGRAMS = {"omfs-run": "omfs_run", "omfs-node": "omfs_node"}


def build(name: str, directory: Path, interpreter: str = "/usr/bin/env python3") -> Path:
    """Make one program; it is renamed into place, as an older one may be running."""
    part = PACKAGE / PROGRAMS[name]
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        tree = Path(temporary) / "tree"
        target = tree / PACKAGE.name / part.name
        target.mkdir(parents=True)
        (target.parent / "__init__.py").write_text(f'__version__ = "{version()}"\n')
        for folder in (part, PACKAGE / "protocol"):
            for source in sorted(folder.rglob("*.py")):
                copy = tree / source.relative_to(PACKAGE.parent)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(source.read_bytes())
        made = Path(temporary) / name
        zipapp.create_archive(tree, made, interpreter, f"{PACKAGE.name}.{part.name}.main:run", compressed=True)
        made.chmod(0o755)
        made.replace(directory / name)
    return directory / name


def version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"', (PACKAGE / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None  # noqa: S101
    return found.group(1)


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"
    directory.mkdir(parents=True, exist_ok=True)
    for name, part in PROGRAMS.items():
        if (PACKAGE / part / "main.py").exists():
            print(build(name, directory, *sys.argv[2:3]))
        else:
            print(f"{name}: not made, there is no {PACKAGE.name}/{part}/main.py", file=sys.stderr)


if __name__ == "__main__":
    main()
