#!/bin/sh
# Put a CRIU that works on new kernels (4.2.1 or later) and our helper omfs-criu under /opt/omfs-criu, beside the system:
# Debian's own packages of a later release with all their libraries and their own loader, unpacked, not installed.
# Packages come from the machine's own Debian mirror and are verified by its archive keyring.
# Does nothing, quickly, when all is there. Needs root, and installs a compiler, setcap and patchelf if they are missing.
set -eu

release=forky
prefix=/opt/omfs-criu
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
tools="gcc libc6-dev make libcap2-bin patchelf"
source=$(cd "$(dirname "$0")/../plugins/criu" && pwd)
helper=$prefix/libexec/omfs/omfs-criu

fail() {
    echo "criu: $1" >&2
    exit 1
}

# The helper is of the sources as they are now.
sum() {
    cat "$source"/Makefile "$source"/*.c | sha256sum
}

has_criu() {
    "$prefix/sbin/criu" --version >/dev/null 2>&1
}

has_helper() {
    [ -x "$helper" ] && [ "$(cat "$prefix/built-of" 2>/dev/null)" = "$(sum)" ] && getcap "$helper" | grep -q checkpoint
}

if has_criu && has_helper; then exit 0; fi
[ "$(id -u)" = 0 ] || fail "only root can put anything into $prefix"
command -v apt-get >/dev/null || fail "no apt-get here: install CRIU 4.2.1, then \`make -C plugins/criu install CRIU=...\`"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

run() {
    env DEBIAN_FRONTEND=noninteractive "$@" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "failed: $*"
    }
}

missing=
for tool in $tools; do
    case $(dpkg-query -W -f='${Status}' "$tool" 2>/dev/null) in
    "install ok installed") ;;
    *) missing="$missing $tool" ;;
    esac
done
if [ -n "$missing" ]; then
    echo "criu: installing$missing"
    run apt-get -qq -o DPkg::Lock::Timeout=120 update
    # shellcheck disable=SC2086 # a list of words
    run apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends $missing
fi

mirror() {
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(ORIGIN)/$(LABEL) $(SITE)' 'Created-By: Packages' |
        sed -n 's|^Debian/Debian ||p' | head -n 1
}

unpack() {
    site=$(mirror)
    if [ -z "$site" ]; then
        run apt-get -qq update # the release's name is known only from its index
        site=$(mirror)
    fi
    [ -n "$site" ] || fail "apt knows no Debian mirror here"
    echo "criu: unpacking CRIU of Debian $release into $prefix"
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/unpacked"
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$site" "$release" >"$work/sources.list"
    # A state of its own without a single installed package: apt fetches the libraries, too, and changes nothing here.
    set -- -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$work/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$work/cache" \
        -o APT::Sandbox::User=root -o Acquire::Retries=3
    run apt-get "$@" update
    run apt-get "$@" -y --download-only --no-install-recommends install criu
    for package in "$work"/cache/archives/*.deb; do
        run dpkg -x "$package" "$work/unpacked"
    done
    for loader in "$work"/unpacked/usr/lib/*/ld-linux-*.so.*; do :; done
    [ -e "$loader" ] || fail "no loader in Debian $release's libc"
    libraries=$prefix${loader#"$work/unpacked/usr"}
    libraries=${libraries%/*}
    # DT_RPATH, which unlike DT_RUNPATH counts for the libraries' libraries.
    run patchelf --set-interpreter "$libraries/${loader##*/}" --force-rpath --set-rpath "$libraries" \
        "$work/unpacked/usr/sbin/criu"
    rm -rf "$prefix.old"
    chown -R root:root "$work/unpacked/usr"
    chmod -R go-w "$work/unpacked/usr"
    mkdir -p "$(dirname "$prefix")"
    [ ! -e "$prefix" ] || mv "$prefix" "$prefix.old"
    mv "$work/unpacked/usr" "$prefix"
    rm -rf "$prefix.old"
    has_criu || fail "the unpacked criu does not run: $("$prefix/sbin/criu" --version 2>&1 | head -n 1)"
}

has_criu || unpack
mkdir "$work/build"
run make -C "$source" install BUILD="$work/build" CRIU="$prefix/sbin/criu" PREFIX="$prefix"
sum >"$prefix/built-of"
