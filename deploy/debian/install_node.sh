#!/bin/sh
# Install what nodes need for the package omfs-node; debian/rules calls this.
#   install_node.sh MADE STAGE    MADE: what was built, and the manual page; STAGE: the package's root
set -eu

made=$1 stage=$2
lib=$stage/usr/lib/omfs libexec=$stage/usr/libexec/omfs share=$stage/usr/share

mkdir -p "$stage/usr/bin" "$lib" "$libexec" "$share/man/man1" "$share/omfs"
# Debian's Python, whatever a job's PATH has first and PYTHONPATH says.
/usr/bin/python3 -m zipapp "$made/omfs-run" -p "/usr/bin/python3 -I" -o "$stage/usr/bin/omfs-run"
/usr/bin/python3 -m zipapp "$made/omfs-node" -p "/usr/bin/python3 -I" -o "$libexec/omfs-node"
chmod 755 "$stage/usr/bin/omfs-run" "$libexec/omfs-node"
install -m 755 "$made/plugins/omfs-criu" "$made/plugins/omfs-criu-attach" "$libexec/"
for plugin in "$made"/plugins/*.so; do
    install -m 644 "$plugin" "$lib/"
done
echo "optional /usr/lib/omfs/omfs_spank.so" >"$share/omfs/plugstack.conf"
install -m 644 "$made/omfs-run.1" "$share/man/man1/"
