#!/bin/sh
# Renew requirements.lock (what omfsd imports) and build.lock (what builds the wheel) from pyproject.toml: the newest
# releases that it permits, with the hashes of all their files. Review the changes like code, then run `make packages`.
# pip takes its index and certificates from its own configuration; neither is written down.
set -eu

cd "$(dirname "$0")/../.."
tools="pip-tools==7.6.2"

python=$(command -v python3.11) || {
    echo "lock: needs Python 3.11, the oldest release that the packages are built for" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "$tools"

setting() {
    "$work/venv/bin/pip" config get "global.$1" 2>/dev/null || true
}
# Other indices and directories of wheels on this machine do not count: their files are not everybody's.
PIP_CERT=${PIP_CERT:-$(setting cert)}
PIP_INDEX_URL=${PIP_INDEX_URL:-$(setting index-url)}
[ -n "$PIP_CERT" ] && export PIP_CERT || unset PIP_CERT
[ -n "$PIP_INDEX_URL" ] && export PIP_INDEX_URL || unset PIP_INDEX_URL
unset PIP_FIND_LINKS PIP_EXTRA_INDEX_URL
export PIP_CONFIG_FILE=/dev/null CUSTOM_COMPILE_COMMAND=deploy/debian/lock.sh

compile() {
    "$work/venv/bin/pip-compile" --quiet --upgrade --generate-hashes --strip-extras --no-emit-index-url \
        --no-emit-trusted-host --no-emit-find-links "$@"
}
compile --output-file deploy/debian/requirements.lock pyproject.toml
# Both are used together when the wheel is built, so what is in both has one release.
"$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' |
    compile --allow-unsafe --constraint deploy/debian/requirements.lock --output-file deploy/debian/build.lock -
