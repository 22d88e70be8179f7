#!/bin/sh
# A Docker engine for the container cluster, and base images for it, on a machine that may have neither and no registry.
#   eval "$(deploy/engine.sh up)"    use the running engine, else start one; sets DOCKER_HOST, DOCKER_CONFIG and PATH
#   deploy/engine.sh run CMD…        run a command with that engine
#   deploy/engine.sh image bookworm  make sure that debian:bookworm-slim (or trixie) exists: pulled, else made from packages
#   deploy/engine.sh down            end the engine, if `up` started it; images stay
# The engine is Debian 13's, unpacked beside the system: CRIU in containers needs Docker 23 or later. Packages come from
# the machine's own Debian mirror and are verified by its archive keyring. Needs root. Exit codes: 0, 1 (one line says why).
set -eu

release=trixie
oldest=23
state=/var/lib/omfs-engine
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
unpacked="docker.io docker-cli containerd docker-buildx docker-compose"
# runc is the system's own: Debian 13's needs a newer libc.
installed="runc iptables libsystemd0 ca-certificates"
socket=unix://$state/docker.sock
pidfile=$state/docker.pid

fail() {
    echo "engine: $1" >&2
    exit 1
}

# Standard output belongs to `up`, so all that is said goes to standard error.
run_quietly() {
    env DEBIAN_FRONTEND=noninteractive "$@" >"$state/last-command.log" 2>&1 || {
        cat "$state/last-command.log" >&2
        fail "failed: $*"
    }
}

need_packages() {
    missing=
    for package in "$@"; do
        case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
        "install ok installed") ;;
        *) missing="$missing $package" ;;
        esac
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || fail "no apt-get here: install Docker $oldest or later yourself and start it"
    echo "engine: installing$missing" >&2
    run_quietly apt-get -qq -o DPkg::Lock::Timeout=120 update
    # shellcheck disable=SC2086 # a list of words
    run_quietly apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends $missing
}

# apt's lines for Debian $1 on the machine's own mirrors.
sources_of() {
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(ORIGIN)/$(LABEL) $(SITE)' 'Created-By: Packages' | sort -u |
        while read -r label site; do
            case $label in
            Debian/Debian) echo "deb [signed-by=$keyring] $site $1 main" ;;
            Debian/Debian-Security) echo "deb [signed-by=$keyring] $site $1-security main" ;;
            esac
        done
}

write_sources() {
    sources_of "$1" >"$2"
    if [ ! -s "$2" ]; then
        run_quietly apt-get -qq update # the mirrors' labels are known only from their indices
        sources_of "$1" >"$2"
    fi
    [ -s "$2" ] || fail "apt knows no Debian mirror here"
}

unpack_engine() {
    [ ! -x "$state/packages/usr/sbin/dockerd" ] || return 0
    echo "engine: unpacking the engine of Debian $release into $state" >&2
    work=$state/download
    rm -rf "$work"
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/packages"
    write_sources "$release" "$work/sources.list"
    set -- -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o Acquire::Retries=3
    run_quietly apt-get "$@" update
    # shellcheck disable=SC2086 # a list of words
    (cd "$work" && run_quietly apt-get "$@" download $unpacked) || exit 1
    for package in "$work"/*.deb; do
        run_quietly dpkg-deb -x "$package" "$work/packages"
    done
    for program in sbin/dockerd bin/docker bin/containerd; do
        run_quietly "$work/packages/usr/$program" --version
    done
    rm -rf "$state/packages"
    mv "$work/packages" "$state/packages"
    rm -rf "$work"
}

prepare_state() {
    [ "$(id -u)" = 0 ] || fail "only root can start an engine"
    mkdir -p "$state"
    chmod 0700 "$state"
    exec 9>"$state/lock"
    flock -w 900 9 || fail "another engine.sh has held $state/lock for 15 minutes"
}

our_docker() {
    env DOCKER_HOST="$socket" DOCKER_CONFIG="$state/config" "$state/packages/usr/bin/docker" "$@"
}

# The process that `up` started, if it lives: a number alone may be another's by now.
our_engine() {
    pid=$(cat "$pidfile" 2>/dev/null) && [ -n "$pid" ] &&
        [ "$(readlink "/proc/$pid/exe")" = "$state/packages/usr/sbin/dockerd" ] && echo "$pid"
}

answers() {
    timeout 20 docker version --format '{{.Server.Version}}' 2>/dev/null
}

link_plugins() {
    mkdir -p "$state/config/cli-plugins"
    ln -sf "$state"/packages/usr/libexec/docker/cli-plugins/* "$state/config/cli-plugins/"
}

start_engine() {
    # shellcheck disable=SC2086 # a list of words
    need_packages $installed
    unpack_engine
    link_plugins
    if ! our_engine >/dev/null; then
        echo "engine: starting" >&2
        rm -f "$pidfile"
        # The usual 2 GB of build cache are less than one build of the cluster needs.
        echo '{"builder": {"gc": {"enabled": true, "defaultKeepStorage": "20GB"}}}' >"$state/daemon.json"
        PATH=$state/packages/usr/sbin:$state/packages/usr/bin:/usr/local/sbin:/usr/sbin:/sbin:$PATH \
            setsid "$state/packages/usr/sbin/dockerd" --config-file "$state/daemon.json" \
            --data-root "$state/data" --exec-root "$state/exec" \
            --pidfile "$pidfile" --host "$socket" --mtu 1400 --log-level warn 9>&- </dev/null >"$state/log" 2>&1 &
    fi
    tries=0
    until our_docker version >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 240 ] || { tail -n 5 "$state/log" >&2; fail "dockerd does not answer: $state/log"; }
        sleep 0.25
    done
}

# Sets DOCKER_HOST, DOCKER_CONFIG and PATH.
up() {
    if [ "${DOCKER_HOST:-$socket}" != "$socket" ] || ! our_engine >/dev/null; then
        if command -v docker >/dev/null && version=$(answers); then
            [ "${version%%.*}" -ge "$oldest" ] ||
                fail "the running Docker $version is older than $oldest, which CRIU in containers needs: stop or upgrade it"
            DOCKER_HOST=${DOCKER_HOST:-$(docker context inspect --format '{{.Endpoints.docker.Host}}')}
            DOCKER_CONFIG=${DOCKER_CONFIG:-${HOME:-/root}/.docker}
            export DOCKER_HOST DOCKER_CONFIG
            docker compose version >/dev/null 2>&1 || fail "Docker runs here, but without its compose plug-in: install it"
            return
        fi
        [ "${DOCKER_HOST:-$socket}" = "$socket" ] || fail "no Docker engine answers at DOCKER_HOST=$DOCKER_HOST"
    fi
    prepare_state
    start_engine
    exec 9>&-
    export DOCKER_HOST="$socket" DOCKER_CONFIG="$state/config"
    case ":$PATH:" in
    ":$state/packages/usr/bin:"*) ;;
    *) export PATH="$state/packages/usr/bin:$PATH" ;;
    esac
}

down() {
    prepare_state
    engine=$(our_engine) || return 0
    kill "$engine"
    tries=0
    while [ -d "/proc/$engine" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 240 ] || fail "dockerd (process $engine) does not end: $state/log"
        sleep 0.25
    done
}

make_image() {
    suite=$1
    name=debian:$suite-slim
    ! docker image inspect "$name" >/dev/null 2>&1 || return 0
    timeout 120 docker pull --quiet "$name" >/dev/null 2>&1 && return 0
    prepare_state
    ! docker image inspect "$name" >/dev/null 2>&1 || return 0 # another made it meanwhile
    echo "engine: no registry answers: making $name from packages" >&2
    need_packages mmdebstrap debian-archive-keyring ca-certificates
    work=$state/image
    rm -rf "$work"
    mkdir -p "$work"
    write_sources "$suite" "$work/sources.list"
    # Where a proxy signs with its own authority, pip in a build needs what this machine trusts.
    bundle=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
    # A machine with a mirror that is not renewed says so in apt's configuration; signatures are checked all the same.
    echo 'Acquire::Languages "none";' >"$work/apt.conf"
    apt-config dump Acquire::Check-Valid-Until >>"$work/apt.conf"
    run_quietly mmdebstrap --mode=root --variant=minbase --include=ca-certificates \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook="upload '$bundle' /etc/ssl/certs/ca-certificates.crt" \
        --customize-hook="upload '$work/apt.conf' /etc/apt/apt.conf.d/90machine" \
        "$suite" "$work/image.tar" "$work/sources.list"
    run_quietly docker import --change 'CMD ["bash"]' "$work/image.tar" "$name"
    rm -rf "$work"
    exec 9>&-
}

case ${1:-} in
up)
    up
    printf 'export DOCKER_HOST=%s DOCKER_CONFIG=%s PATH=%s\n' "$DOCKER_HOST" "$DOCKER_CONFIG" "$PATH"
    ;;
run)
    shift
    [ $# -gt 0 ] || fail "run which command?"
    up
    exec "$@"
    ;;
image)
    case ${2:-} in bookworm | trixie) ;; *) fail "image bookworm or trixie, not '${2:-}'" ;; esac
    up
    make_image "$2"
    ;;
down) down ;;
*)
    sed -n 's/^#   //p' "$0" >&2
    exit 1
    ;;
esac
