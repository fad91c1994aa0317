#!/bin/bash
# build.sh OUT PART MODULE...: a kernel and an initial file system for a guest with this part of its init and these
# modules, of what Debian installs: linux-image-amd64 (its directories in $KERNEL, / when it is installed),
# busybox-static.
set -euo pipefail
out=$1 part=$2
shift 2
root=${KERNEL:-}
version=$(ls "$root/lib/modules" | grep amd64 | sort -V | tail -1)
[ -e "$root/lib/modules/$version/modules.dep" ] || depmod -b "${root:-/}" "$version"
mkdir -p "$out/root"/{bin,proc,sys,dev,host,modules}

# The kernel itself, which starts without a boot loader (PVH): the xz stream in the installed image.
python3 - "$root/boot/vmlinuz-$version" "$out/vmlinux" <<'PYTHON'
import lzma, sys
image = open(sys.argv[1], "rb").read()
at = image.find(b"\xfd7zXZ\0")
while at >= 0:
    try:
        kernel = lzma.LZMADecompressor().decompress(image[at:])
    except lzma.LZMAError:
        kernel = b""
    if kernel.startswith(b"\x7fELF"):
        open(sys.argv[2], "wb").write(kernel)
        sys.exit()
    at = image.find(b"\xfd7zXZ\0", at + 1)
sys.exit("no kernel in " + sys.argv[1])
PYTHON

cp "$(command -v busybox)" "$out/root/bin/busybox"
for name in virtio_pci virtio_net "$@" 9p 9pnet_virtio; do
  modprobe -d "${root:-/}" -S "$version" --show-depends "$name"
done | awk '/^insmod/ && !seen[$2]++ { print $2 }' > "$out/modules"
while read -r file; do cp "$file" "$out/root/modules/"; done < "$out/modules"
xargs -n1 basename < "$out/modules" > "$out/root/modules/order"
cp "$(dirname "$0")/init" "$out/root/init"
cp "$(dirname "$0")/$part.part" "$out/root/part"
chmod +x "$out/root/init"
(cd "$out/root" && find . | cpio -o -H newc --quiet | gzip -1) > "$out/initrd.gz"
