#!/bin/sh
# Install the system packages that the demo and the tests need: a real Slurm, MUNGE, promtool, python3-venv.
# As `setup.sh tests` also what builds the SPANK plug-in, Open MPI, slurmdbd with a database, what checks manual pages,
# Alertmanager's file, and dashboards, and CRIU with its helper, beside the system (deploy/criu.sh).
# Does nothing, quickly, when they are there. Leaves no service running or enabled that was not before.
# Exit codes: 0 all there; 3 neither root nor sudo, or no apt (one line says which); else apt's own failure.
set -eu

packages="slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins prometheus python3-venv"
[ "${1:-}" != tests ] || packages="$packages gcc libc6-dev make libslurm-dev openmpi-bin slurmdbd mariadb-server-core"
[ "${1:-}" != tests ] || packages="$packages groff-base mandoc prometheus-alertmanager"
# npm may also be there with a Node.js that is not Debian's.
[ "${1:-}" != tests ] || command -v npm >/dev/null || packages="$packages npm"
# Of these, what would start at boot: the demo and the tests start their own, private ones.
services="slurmctld slurmd slurmdbd prometheus prometheus-alertmanager"

cannot() {
    echo "setup: $1" >&2
    exit 3
}

missing() {
    for package in $packages; do
        case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
        "install ok installed") ;;
        *) printf '%s ' "$package" ;;
        esac
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || cannot "a real Slurm needs root, and there is no sudo here"
    # Without a terminal nobody could type the password.
    if [ -t 0 ]; then sudo -v; else sudo -n true 2>/dev/null; fi || cannot "a real Slurm needs root, and sudo refuses"
fi
command -v dpkg-query >/dev/null || cannot "this is not a Debian: install these yourself: $packages"
wanted=$(missing)
rest() {
    [ "${1:-}" != tests ] || as_root "$(dirname "$0")/criu.sh"
}

if [ -z "$wanted" ]; then
    rest "$@"
    exit
fi
command -v apt-get >/dev/null || cannot "no apt-get here to install $wanted"

# Debian starts services on installation; this file is Debian's own way to forbid it (invoke-rc.d(8)).
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'as_root rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
fi

echo "setup: installing $wanted"
apt="env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120"
log=$(mktemp)
# shellcheck disable=SC2086 # lists of words
if ! { as_root $apt update && as_root $apt install -y --no-install-recommends $wanted; } >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    echo "setup: apt could not install $wanted" >&2
    exit 1
fi
rm -f "$log"

if command -v systemctl >/dev/null; then
    for service in $services; do
        case " $wanted " in *" $service "*) as_root systemctl disable --now "$service" >/dev/null 2>&1 || true ;; esac
    done
fi
rest "$@"
