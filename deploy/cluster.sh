#!/bin/sh
# The container cluster (docs/cluster.md).
#   deploy/cluster.sh up      engine, base image, checks of the machine, build, start; waits until all is healthy
#   deploy/cluster.sh down    remove it with its data; images stay
#   deploy/cluster.sh check   only say what is in its way here: memory, a taken network, a taken port
# DEBIAN, OMFS_NETWORK, OMFS_PROMETHEUS_PORT, OMFS_GRAFANA_PORT: as in docker-compose.yml. Exit codes: 0, 1.
set -eu
cd "$(dirname "$0")/.."

debian=${DEBIAN:-trixie}
network=${OMFS_NETWORK:-172.30.86}
needed_mb=2000

fail() {
    echo "cluster: $1" >&2
    exit 1
}

compose() {
    deploy/engine.sh run docker compose "$@"
}

is_up() {
    [ -n "$(compose ps --quiet 2>/dev/null)" ]
}

port_is_taken() {
    ss -Hltn "sport = :$1" 2>/dev/null | grep -q .
}

# Everything that is in the way, a line each.
problems() {
    free=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
    [ "$free" -ge "$needed_mb" ] || echo "$free MB of memory are available, $needed_mb MB are needed"
    taken=$(ip -4 -o route show root "$network.0/24" type unicast | head -n 1)
    [ -n "$taken" ] || taken=$(ip -4 -o route show match "$network.1" type unicast | grep -v '^default' | head -n 1)
    [ -z "$taken" ] || echo "the network $network.0/24 is taken here ($taken): choose another with OMFS_NETWORK"
    port=${OMFS_PROMETHEUS_PORT:-9090}
    ! port_is_taken "$port" || echo "port $port is taken here: choose another with OMFS_PROMETHEUS_PORT"
    case ",${COMPOSE_PROFILES:-}," in
    *,grafana,*)
        port=${OMFS_GRAFANA_PORT:-3000}
        ! port_is_taken "$port" || echo "port $port is taken here: choose another with OMFS_GRAFANA_PORT"
        ;;
    esac
}

check() {
    found=$(problems)
    [ -z "$found" ] || {
        echo "$found" | sed 's/^/cluster: /' >&2
        exit 1
    }
}

case ${1:-} in
check) check ;;
up)
    case $debian in trixie | bookworm) ;; *) fail "DEBIAN is trixie or bookworm, not '$debian'" ;; esac
    is_up || check
    deploy/engine.sh image "$debian"
    compose build --quiet
    # Nothing of the cluster leaves this machine by its default route while the cluster's network does not exist.
    [ "$(id -u)" != 0 ] || ip route replace unreachable "$network.0/24" metric 4096
    compose up --detach --wait --wait-timeout 300
    ;;
down)
    compose --profile grafana down --volumes --remove-orphans --timeout 5
    [ "$(id -u)" != 0 ] || ip route del unreachable "$network.0/24" metric 4096 2>/dev/null || true
    ;;
*)
    sed -n 's/^#   //p' "$0" >&2
    exit 1
    ;;
esac
