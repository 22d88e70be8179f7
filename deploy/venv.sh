#!/bin/sh
# Make the virtual environment $1 with omfs-daemon (editable) and what its tests need.
set -eu

find_python() {
    for python in python3 python3.11 python3.12 python3.13 python3.14; do
        if "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

directory=$1
# A fresh Debian has Python without its venv module, which setup.sh installs.
if ! python=$(find_python); then
    "$(dirname "$0")/setup.sh" || true
    python=$(find_python) || {
        echo "venv: needs Python 3.11 or newer with its venv module (Debian: apt install python3-venv)" >&2
        exit 1
    }
fi
[ -x "$directory/bin/python" ] || "$python" -m venv "$directory"
"$directory/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'
