#!/bin/bash
# serve.sh OUT NFS MOUNT: a guest of build.sh whose kernel serves NFS, at these two ports of 127.0.0.1.
set -euo pipefail
# The guest ends with whatever started it, however that ends.
exec setpriv --pdeathsig KILL timeout -s KILL 400 setpriv --pdeathsig KILL \
  qemu-system-x86_64 -accel tcg,thread=multi,tb-size=256 -cpu max -smp 2 -m 1024 -nographic \
  -no-reboot -nodefaults -no-user-config -serial stdio -kernel "$1/vmlinux" -initrd "$1/initrd.gz" \
  -netdev "user,id=net,hostfwd=tcp:127.0.0.1:$2-:2049,hostfwd=tcp:127.0.0.1:$3-:20048" \
  -device virtio-net-pci,netdev=net,romfile= \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -append "console=ttyS0 panic=-1 quiet mitigations=off nokaslr 8250.nr_uarts=1 address=10.0.2.15/24"
