#!/bin/bash
# boot.sh OUT NETDEV STATE WORD...: a guest of build.sh on a network device of QEMU's (-netdev, without its id).
# STATE is a directory that it may write, WORDs go to its init.
set -euo pipefail
out=$1 netdev=$2 state=$3
shift 3
# no_timer_check: a busy host answers the kernel's look for a broken timer too late.
# The guest ends with whatever started it, however that ends.
exec setpriv --pdeathsig KILL timeout -s KILL 400 setpriv --pdeathsig KILL \
  qemu-system-x86_64 -accel tcg,thread=multi,tb-size=256 -cpu max -smp 2 -m 1024 -nographic \
  -no-reboot -nodefaults -no-user-config -serial stdio -kernel "$out/vmlinux" -initrd "$out/initrd.gz" \
  -netdev "$netdev,id=net" -device virtio-net-pci,netdev=net,romfile= \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -virtfs "local,path=$state,mount_tag=state,security_model=none" \
  -append "console=ttyS0 panic=-1 quiet mitigations=off nokaslr 8250.nr_uarts=1 no_timer_check $*"
