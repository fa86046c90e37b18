#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# RDMA on real verbs without hardware: a virtual machine whose kernel has
# soft-RoCE (rdma_rxe), with this machine's files as its own, mounted read-only.
# It runs guest.sh, and this script ends as that did.
#
#   tests/rdma_vm/run.sh             the tests
#   tests/rdma_vm/run.sh COMMAND     anything else, in the same surroundings
#
# The kernel is Debian's. It is fetched once, to ~/.cache/mooactor/rdma-vm, and
# not installed. Emulation in software: /dev/kvm is not needed, and not used.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/mooactor/rdma-vm
python=${PYTHON:-$root/.venv/bin/python}
# seconds for all of it, against hangs: five minutes on a quiet machine, and fifteen
# beside other work
limit=${RDMA_VM_SECONDS:-1500}

say() { printf '== rdma-vm: %s\n' "$*"; }
skip() { say "skipped: $*"; exit 0; }
fail() { say "FAILED: $*"; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_packages() {
    local packages=(qemu-system-x86 seabios busybox-static cpio iproute2
        ibverbs-utils ibverbs-providers librdmacm1 libfabric1 libfabric-bin
        libfabric-dev) missing=() p
    for p in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null |
            grep -q 'install ok installed' || missing+=("$p")
    done
    [ ${#missing[@]} = 0 ] && return
    say "installing ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
        --no-install-recommends "${missing[@]}" >/dev/null ||
        skip "these packages cannot be installed: ${missing[*]}"
}

# Debian's newest kernel, unpacked to $cache/PACKAGE; sets $kernel to that.
fetch_kernel() {
    local package
    package=$(apt-cache depends linux-image-amd64 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -1)
    [ -n "$package" ] || skip "there is no Debian package linux-image-amd64 here"
    kernel=$cache/$package
    [ -e "$kernel/boot" ] && return
    say "fetching $package (70 MB, once)"
    local partial=$cache/partial.$$
    rm -rf "$partial" && mkdir -p "$partial"
    (cd "$partial" && apt-get download -qq "$package" >/dev/null &&
        dpkg -x ./*.deb . && rm ./*.deb) || {
        rm -rf "$partial"
        skip "$package cannot be fetched"
    }
    mv "$partial" "$kernel"
}

# busybox and the modules, in the order in which they are to be loaded; sets
# $initrd.
make_initramfs() {
    # crc32_generic is what rdma_rxe needs and does not name
    local names="virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio
        virtio_pci 9pnet 9pnet_virtio netfs fscache 9p dummy crc32_generic
        ib_core ib_uverbs ib_cm iw_cm configfs rdma_cm rdma_ucm udp_tunnel
        ip6_udp_tunnel rdma_rxe"
    local tree=$scratch/initramfs name file
    initrd=$scratch/initrd
    mkdir -p "$tree"/{bin,proc,sys,dev,h,modules}
    cp "$(command -v busybox)" "$tree/bin/busybox"
    cp "$here/init" "$tree/init" && chmod 755 "$tree/init"
    for name in $names; do
        file=$(find "$kernel/lib/modules" -name "$name.ko*" | head -1)
        [ -n "$file" ] || continue # part of the kernel itself
        case $file in
        *.xz) xz -dc "$file" >"$tree/modules/$name.ko" ;;
        *.zst) zstd -qdc "$file" >"$tree/modules/$name.ko" ;;
        *) cp "$file" "$tree/modules/" ;;
        esac
        echo "$name" >>"$tree/modules/order"
    done
    grep -q rdma_rxe "$tree/modules/order" ||
        skip "Debian's kernel has no rdma_rxe any more"
    (cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$initrd"
}

# A script of what the guest is to do: this machine's paths are its paths.
make_command() {
    {
        echo "export ROOT='$root' PYTHON='$python'"
        if [ $# = 0 ]; then
            echo "exec sh '$here/guest.sh'"
        else
            echo "cd '$root' && $*"
        fi
    } >"$scratch/command"
}

boot() {
    timeout "$limit" nice -n 10 qemu-system-x86_64 \
        -accel tcg,thread=multi -cpu max -smp 2 -m 3072 \
        -nodefaults -nographic -serial stdio -monitor none -no-reboot \
        -nic none \
        -fsdev local,id=hr,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=hr,mount_tag=hostroot \
        -kernel "$(echo "$kernel"/boot/vmlinuz-*)" -initrd "$initrd" \
        -append "console=ttyS0 quiet panic=-1 oops=panic mitigations=off t.cmd=$scratch/command" \
        </dev/null | sed -u 's/\r//g; s/\x1b[^a-zA-Z]*[a-zA-Z]//g' | tee "$scratch/console"
}

[ "$(uname -m)" = x86_64 ] || skip "the virtual machine is an x86-64 one"
command -v apt-get >/dev/null || skip "it is put together from Debian packages"
mkdir -p "$cache"
scratch=$(mktemp -d "$cache/run.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
install_packages
fetch_kernel
say "building the extension again, if libfabric has come since"
(cd "$root" && "$python" setup.py --quiet build_ext --inplace)
if [ $# = 0 ]; then
    say "building the C tests"
    make -s -C "$root/tests/c" build/none/test_fabric build/none/test_device \
        build/none/test_collective_hosts
fi
make_initramfs
make_command "$@"
say "booting $(basename "$kernel")"
boot || fail "the virtual machine did not end within $limit s, or could not start"
status=$(sed -n 's/^GUEST-RC \([0-9][0-9]*\)$/\1/p' "$scratch/console" | tail -1)
[ -n "$status" ] || fail "the virtual machine ended without a word of the tests"
say "guest ended with $status after $SECONDS s"
exit "$status"
