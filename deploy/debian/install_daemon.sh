#!/bin/sh
# Install the daemon with its Python environment for the package omfs-daemon; debian/rules calls this.
#   install_daemon.sh TOOLS STAGE VENV UNITS    TOOLS: an environment with build.lock; STAGE: the package's root;
#                                               VENV and UNITS: where the environment and units go, below STAGE
set -eu

tools=$1 stage=$2 venv=$2/$3 final=/$3 units=$2$4
share=$stage/usr/share

pip() {
    "$tools/bin/pip" --python "$venv/bin/python3" --disable-pip-version-check --quiet --no-input "$@"
}

/usr/bin/python3 -m venv --without-pip "$venv"
pip install --require-hashes --only-binary :all: --no-compile -r debian/requirements.lock
# The manual pages are made from the command line: its environment builds the wheel, with the tools' Hatchling.
PYTHONPATH=$(echo "$tools"/lib/python3*/site-packages) PYTHONDONTWRITEBYTECODE=1 \
    "$venv/bin/python3" -m hatchling build -t wheel -d debian/made/wheel
pip install --no-deps --no-index --no-compile debian/made/wheel/*.whl
rm "$venv"/lib/python3*/site-packages/omfs_daemon-*.dist-info/direct_url.json

# Only what is ours is in PATH; `-I`: neither a user's PYTHONPATH nor packages in a home directory count.
for program in "$venv"/bin/*; do
    case ${program##*/} in
    python*) ;;
    omfs | omfsd) sed -i "1s|.*|#!$final/bin/python3 -I|" "$program" ;;
    *) rm "$program" ;;
    esac
done
sed -i "/^command = /d" "$venv/pyvenv.cfg"
rm -rf "$venv"/lib/python3*/site-packages/numpy/*/tests # a fifth of all
find "$venv" -name __pycache__ -prune -exec rm -rf {} +
find "$venv/lib" -type f -name '*.so*' -exec chmod 644 {} +
"$venv/bin/python3" -m compileall -q --invalidation-mode unchecked-hash -s "$stage" -p / "$venv/lib"

mkdir -p "$stage/usr/bin" "$stage/etc/omfs" "$share/zsh/vendor-completions"
ln -s "../lib/omfs/venv/bin/omfs" "../lib/omfs/venv/bin/omfsd" "$stage/usr/bin/"
for folder in man bash-completion fish omfs; do
    mv "$venv/share/$folder" "$share/"
done
mv "$venv/share/zsh/site-functions/_omfs" "$share/zsh/vendor-completions/"
mv "$share/man/man1/omfs-run.1" debian/made/
find "$share/man" -type f ! -name 'omfs*' -delete # of ClusterShell's commands
rm -r "$venv/share" "$venv/include"
if [ -d "$share/omfs/systemd" ]; then
    mkdir -p "$units"
    find "$share/omfs/systemd" -maxdepth 1 -type f -exec mv -t "$units" {} +
    mv "$share/omfs/systemd/sysusers.d" "$share/omfs/systemd/tmpfiles.d" "$stage/usr/lib/"
    # Drop-ins with what older releases of systemd warn of.
    [ "$(pkg-config --modversion systemd)" -lt 254 ] || cp -r "$share"/omfs/systemd/systemd-254/* "$units/"
    rm -r "$share/omfs/systemd"
fi
mkdir -p "$stage/usr/libexec/omfs" "$share/doc/omfs-daemon"
mv "$share/omfs/plugins/epilog_slurmctld" "$stage/usr/libexec/omfs/"
cp -r README.md docs "$share/doc/omfs-daemon/"
