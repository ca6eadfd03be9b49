#!/usr/bin/python3
"""How often stock Linux with two vCPUs comes to its end in the lab, under Ringside and under QEMU in turns, without and
with a disk, and as a whole Debian with systemd: the lab's emulator spoils boots by itself now and then, so neither VMM is
believed alone. By hand, as it takes hours; what was seen is kept, so it may be stopped and begun again.

    tests/lab/boots.py [--each N] [--debian N] [--cpus N] [--kernel VERSION]... [--minutes N] [--results FILE] [--forget]

The Debian is made anew by mmdebstrap, which must be installed, and verifies a job of fio before it powers off. What was
seen is printed as a table, and for each kind of guest the probability that two VMMs that fail equally often differ so much
or more (Fisher's exact test, two-sided). Exit status: 0, or 1 if not all boots were made, or if that probability is below
0.05 and Ringside's failures are more.
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
LAB = CHECKOUT / "build/lab"
GUEST_SCRIPT = CHECKOUT / "tests/lab/boots_guest.sh"
TURNS = 2  # per L1, whose own start takes 10 s
LIMIT_S = 300  # of a boot; one that comes to its end takes 20 to 80, by the load of the host
DEBIAN_LIMIT_S = 900
DEBIAN = LAB / "debian"  # its root.img, vmlinuz and initrd.img
DEBIAN_PACKAGES = "linux-image-amd64,systemd-sysv,initramfs-tools,e2fsprogs,fio"
# The console, as a login takes its terminal away from all others.
DEBIAN_UNIT = """[Unit]
Description=What the boots are for
[Service]
Type=idle
ExecStart=/bin/sh -c 'sh /boots_guest.sh >/dev/console 2>&1; systemctl poweroff'
[Install]
WantedBy=multi-user.target
"""


def fisher(failed, of, others_failed, of_others):
    """The two-sided p of these two counts: of all tables with the same sums, those that are no likelier."""
    total, sum_failed = of + of_others, failed + others_failed

    def likelihood(first):
        return math.comb(of, first) * math.comb(of_others, sum_failed - first)

    possible = range(max(0, sum_failed - of_others), min(of, sum_failed) + 1)
    seen = likelihood(failed)
    return sum(count for count in map(likelihood, possible) if count <= seen) / math.comb(total, sum_failed)


def lab(*arguments, timeout):
    return subprocess.run([CHECKOUT / "tools/lab", *map(str, arguments)], cwd=CHECKOUT, timeout=timeout, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def prepare(kernels):
    """The guests' initramfs per kernel, and their root disk."""
    for kernel in kernels:
        made = lab("--kernel-version", kernel, "--guest-initrd", LAB / f"boots-{kernel}.cpio", "--module", "virtio_pci",
                   "--module", "virtio_blk", "--autorun", GUEST_SCRIPT, timeout=300)
        if made.returncode != 0:
            sys.exit(made.stdout)
    made = lab("--guest-disk", LAB / "boots.img", "--size", "64M", "--autorun", GUEST_SCRIPT, timeout=300)
    if made.returncode != 0:
        sys.exit(made.stdout)


def prepare_debian():
    """Debian's generic kernel with the initramfs that its own tools make, and a root file system."""
    root = DEBIAN / "root"
    shutil.rmtree(DEBIAN, ignore_errors=True)
    DEBIAN.mkdir(parents=True)
    subprocess.run(["mmdebstrap", "--quiet", "--variant=important", f"--include={DEBIAN_PACKAGES}", "bookworm", root],
                   check=True, timeout=900)
    shutil.copy(GUEST_SCRIPT, root)
    (root / "etc/systemd/system/boots.service").write_text(DEBIAN_UNIT)
    subprocess.run(["systemctl", f"--root={root}", "enable", "boots.service"], check=True)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(next(root.glob(f"boot/{name}-*")), DEBIAN / name)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root, DEBIAN / "root.img", "2G"], check=True, timeout=300)
    shutil.rmtree(root)


def boots_in_one_lab(options, guests, turns, limit, lab_arguments, kernel, initrd, root):
    """What one L1 has made of them, of which the last may be missing."""
    done = lab("--peer-qemu", "--cpus", options.cpus, "--timeout", 0, "--file", "tests/lab/common.sh", "--file",
               "tests/lab/qemu.sh", "--file", kernel, "--file", initrd, *lab_arguments, "--", "sh", "tests/lab/boots.sh",
               "build/release/ringside", turns, " ".join(guests), limit, kernel, initrd, root,
               timeout=turns * len(guests) * 2 * (limit + 10) + 120)
    boots = []
    for line in done.stdout.splitlines():
        words = line.split()
        if words[:1] == ["boot"] and len(words) == 5:
            boots.append({"vmm": words[1], "guest": words[2], "outcome": words[3], "seconds": int(words[4]),
                          "kernel": kernel, "cpus": options.cpus})
        elif boots and boots[-1]["outcome"] != "done":
            boots[-1].setdefault("console", []).append(line)
    if done.returncode != 0:
        print(f"\nthe lab itself ended with {done.returncode} after {len(boots)} boots:\n{done.stdout[-2000:]}")
    return boots


def boot_stock(options, turn):
    """Stock cloud kernels with an initramfs, without and with a disk."""
    version = options.kernel[turn % len(options.kernel)]
    root = "build/lab/boots.img"
    return boots_in_one_lab(options, ("bare", "disk"), TURNS, LIMIT_S, ["--kernel-version", version, "--file", root],
                            f"build/lab/kernels/{version}/bzImage", f"build/lab/boots-{version}.cpio", root)


def boot_debian(options, _turn):
    """Each VMM has a disk of its own, on which nobody has booted."""
    disks = [DEBIAN / f"boot{number}.img" for number in (1, 2)]
    for disk in disks:
        subprocess.run(["cp", "--sparse=always", DEBIAN / "root.img", disk], check=True)
    nvme = [word for disk in disks for word in ("--nvme", disk)]
    return boots_in_one_lab(options, ("debian",), 1, DEBIAN_LIMIT_S, nvme,
                            "build/lab/debian/vmlinuz", "build/lab/debian/initrd.img", "/dev/nvme0n")


def report(boots):
    suspicious = False
    print(f"{'guest':8}{'VMM':10}{'boots':>7}{'failed':>8}{'seconds':>9}  how")
    for guest in ("bare", "disk", "debian"):
        counts = []
        for vmm in ("ringside", "qemu"):
            mine = [boot for boot in boots if (boot["vmm"], boot["guest"]) == (vmm, guest)]
            failed = [boot["outcome"] for boot in mine if boot["outcome"] != "done"]
            times = sorted(boot["seconds"] for boot in mine)
            counts += [len(failed), len(mine)]
            print(f"{guest:8}{vmm:10}{len(mine):7}{len(failed):8}{times[len(times) // 2] if times else 0:9}  "
                  f"{', '.join(f'{failed.count(how)} {how}' for how in sorted(set(failed)))}")
        p = fisher(*counts)
        print(f"{'':8}p = {p:.2f}")
        suspicious |= p < 0.05 and counts[0] * counts[3] > counts[2] * counts[1]
    return suspicious


def make(boots, guests, wanted, prepare_them, boot, options, end):
    """Adds what boot(options, turn) makes to `boots` and to the results, until there are as many of these guests."""
    if sum(one["guest"] in guests for one in boots) < wanted:
        prepare_them()
    turn = sum(one["guest"] in guests for one in boots)
    while sum(one["guest"] in guests for one in boots) < wanted and time.monotonic() < end:
        new = boot(options, turn)
        turn += 1
        with options.results.open("a") as file:
            file.writelines(json.dumps(one) + "\n" for one in new)
        boots += new
        failed = sum(one["outcome"] != "done" for one in boots)
        print(f"\r{len(boots)} boots, {failed} failed ", end="", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=50, help="boots of each VMM without, and with, a disk (default: 50)")
    parser.add_argument("--debian", type=int, default=2, help="boots of each VMM of a whole Debian (default: 2)")
    parser.add_argument("--cpus", type=int, default=2, help="processors of L1 (default: 2, where the emulator fails most)")
    parser.add_argument("--kernel", action="append", choices=["6.1", "6.12"], help="in turns (default: both)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no other L1 after so long")
    parser.add_argument("--results", type=pathlib.Path, default=LAB / "boots.jsonl")
    parser.add_argument("--forget", action="store_true", help="begin from nothing")
    options = parser.parse_args()
    options.kernel = options.kernel or ["6.1", "6.12"]
    if options.forget:
        options.results.unlink(missing_ok=True)
    boots = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    end = time.monotonic() + options.minutes * 60
    make(boots, ("bare", "disk"), 4 * options.each, lambda: prepare(options.kernel), boot_stock, options, end)
    make(boots, ("debian",), 2 * options.debian, prepare_debian, boot_debian, options, end)
    print()
    suspicious = report(boots)
    return 1 if suspicious or len(boots) < 4 * options.each + 2 * options.debian else 0


if __name__ == "__main__":
    sys.exit(main())
