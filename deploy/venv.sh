#!/bin/sh
# Make the virtual environment $1 with omfs-daemon (editable) and what its tests need.
set -eu

directory=$1
for python in python3 python3.11 python3.12 python3.13 python3.14; do
    if "$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        [ -x "$directory/bin/python" ] || "$python" -m venv "$directory"
        exec "$directory/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'
    fi
done
echo "venv: no Python 3.11 or newer with its venv module (Debian: apt install python3-venv)" >&2
exit 1
