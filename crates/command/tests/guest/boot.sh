#!/bin/bash
# boot.sh OUT TAP ADDRESS SERVER PORT EXPORT JOB ARGUMENT: runs a job in a guest of build.sh on a mounted export.
# A tap with this name is there, and the server is reached by it.
set -euo pipefail
# The guest ends with whatever started it, however that ends.
exec setpriv --pdeathsig KILL timeout -s KILL 400 setpriv --pdeathsig KILL \
  qemu-system-x86_64 -accel tcg,thread=multi,tb-size=256 -cpu max -smp 2 -m 1024 -nographic \
  -no-reboot -nodefaults -no-user-config -serial stdio -kernel "$1/vmlinux" -initrd "$1/initrd.gz" \
  -netdev "tap,id=net,ifname=$2,script=no,downscript=no" -device virtio-net-pci,netdev=net,romfile= \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -append "console=ttyS0 panic=-1 quiet mitigations=off nokaslr 8250.nr_uarts=1 address=$3/24 server=$4 port=$5 \
export=$6 job=$7 argument=$8"
