#!/bin/sh
# Installs libtrapeze: install.sh LIBRARY PREFIX. DESTDIR, if set, goes before PREFIX, for packages.
#
#   PREFIX/include/trapeze.h
#   PREFIX/lib/libtrapeze.so.VERSION, libtrapeze.so.0 (for the loader), libtrapeze.so (for the linker)
#   PREFIX/lib/pkgconfig/trapeze.pc
set -eu
if [ $# -ne 2 ] || [ ! -f "$1" ]; then
    echo "usage: $0 LIBRARY PREFIX, with LIBRARY the libcapi.so that cargo build --release -p capi has made" >&2
    exit 2
fi
library=$1
prefix=$2
here=$(dirname "$0")
version=$(sed -n '/^\[workspace.package\]/,/^\[workspace.dep/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
to=${DESTDIR:-}$prefix

install -d "$to/include" "$to/lib/pkgconfig"
install -m 644 "$here/include/trapeze.h" "$to/include/trapeze.h"
install -m 755 "$library" "$to/lib/libtrapeze.so.$version"
# What debuggers want is ten times the library.
if command -v strip >/dev/null; then strip --strip-debug "$to/lib/libtrapeze.so.$version"; fi
ln -sf "libtrapeze.so.$version" "$to/lib/libtrapeze.so.0"
ln -sf libtrapeze.so.0 "$to/lib/libtrapeze.so"
cat > "$to/lib/pkgconfig/trapeze.pc" <<END
prefix=$prefix
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: trapeze
Description: Messages whose payloads land where the receiver wants them, and calls, over shared memory and TCP
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -ltrapeze
END
