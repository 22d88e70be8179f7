#!/bin/sh
# Make the virtual environment $1 with the client programs of tests/clients/requirements.txt, from PyPI.
set -eu

directory=$1
python=$2
here=$(dirname "$0")
[ -x "$directory/bin/python" ] || "$python" -m venv "$directory"
"$directory/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/../tests/clients/requirements.txt"
