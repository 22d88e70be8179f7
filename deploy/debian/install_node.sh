#!/bin/sh
# Install what nodes need for the package omfs-node; debian/rules calls this.
#   install_node.sh MADE STAGE    MADE: what was built, and the manual page; STAGE: the package's root
set -eu

made=$1 stage=$2
lib=$stage/usr/lib/omfs libexec=$stage/usr/libexec/omfs share=$stage/usr/share

mkdir -p "$stage/usr/bin" "$lib" "$libexec" "$share/man/man1" "$share/omfs"
install -m 755 "$made/omfs-run" "$stage/usr/bin/"
install -m 755 "$made/omfs-node" "$libexec/"
install -m 755 "$made/plugins/omfs-criu" "$made/plugins/omfs-criu-attach" "$libexec/"
for plugin in "$made"/plugins/*.so; do
    install -m 644 "$plugin" "$lib/"
done
echo "optional /usr/lib/omfs/omfs_spank.so" >"$share/omfs/plugstack.conf"
install -m 644 "$made/omfs-run.1" "$share/man/man1/"
