#!/bin/sh
# Build omfs-daemon_VERSION_ARCH.deb and omfs-node_VERSION_ARCH.deb for the Debian release that this runs on.
#   deploy/debian/build.sh [DIRECTORY]    DIRECTORY: build/packages if not given
# Does nothing, quickly, if they are there and nothing has changed. pip takes its index and certificates from its own
# configuration, and checks the hashes in requirements.lock and build.lock. As root it installs missing build
# dependencies. Environment: OMFS_PIP_CACHE, a directory where pip keeps what it has downloaded.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$root/build/packages}
sources="CHANGELOG.md LICENSE README.md deploy docs omfs_daemon plugins pyproject.toml"
[ ! -d "$root/systemd" ] || sources="$sources systemd"

fail() {
    echo "packages: $1" >&2
    exit 1
}

[ -r /etc/debian_version ] && command -v dpkg-deb >/dev/null || fail "Debian packages can be built on Debian only"
. /etc/os-release
[ -n "${VERSION_ID:-}" ] || fail "this Debian has no VERSION_ID in /etc/os-release: build on a release"
upstream=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/omfs_daemon/__init__.py")
# 1.0rc1 and 1.0.dev1 come before 1.0.
version=$(echo "$upstream" | sed -E 's/\.?(a|b|rc|dev)([0-9])/~\1\2/')+deb$VERSION_ID

# shellcheck disable=SC2086 # a list of words
stage_sources() {
    (cd "$root" && tar -c --exclude=__pycache__ --exclude='*.pyc' --sort=name --mtime=@0 --owner=root:0 --group=root:0 \
        --mode=go=rX $sources)
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
built_of="$(stage_sources | sha256sum | cut -d ' ' -f 1) $version $(dpkg --print-architecture) $(/usr/bin/python3 -V 2>&1)"
if [ "$(cat "$out/built-of" 2>/dev/null)" = "$built_of" ] && ls "$out"/omfs-*_"$version"_*.deb >/dev/null 2>&1; then
    ls "$out"/*.deb
    exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$work/source"
stage_sources | tar -xm -C "$work/source" --no-same-owner
cd "$work/source"
cp -r deploy/debian debian
date=$(date -R -u ${SOURCE_DATE_EPOCH:+-d "@$SOURCE_DATE_EPOCH"})
maintainer=$(sed -n 's/^Maintainer: //p' debian/control)
cat >debian/changelog <<END
omfs-daemon ($version) $VERSION_CODENAME; urgency=medium

  * Version $upstream: see changelog.gz.

 -- $maintainer  $date
END

run() {
    "$@" >"$work/log" 2>&1 || {
        tail -n 60 "$work/log" >&2
        fail "failed: $*"
    }
}

if ! dpkg-checkbuilddeps >"$work/missing" 2>&1; then
    [ "$(id -u)" = 0 ] || fail "$(tail -n 1 "$work/missing" | sed 's/.*error: //'): as root, this installs them"
    echo "packages: installing build dependencies"
    run apt-get -qq -o DPkg::Lock::Timeout=120 update
    run env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=120 --no-install-recommends \
        build-dep "$work/source"
fi
[ -z "${OMFS_PIP_CACHE:-}" ] || export PIP_CACHE_DIR="$OMFS_PIP_CACHE"
run dpkg-buildpackage --build=binary --no-sign
rm -f "$out"/omfs-*.deb "$out/built-of"
mv "$work"/*.deb "$out/"
echo "$built_of" >"$out/built-of"
ls "$out"/*.deb
