#!/usr/bin/python3
"""How often stock Linux with two vCPUs comes to its end in the lab, under Ringside and under QEMU in turns, without and
with a disk: the lab's emulator spoils boots by itself now and then, so neither VMM is believed alone. By hand, as it
takes about 85 minutes; what was seen is kept, so it may be stopped and begun again.

    tests/lab/boots.py [--each N] [--cpus N] [--kernel VERSION]... [--minutes N] [--results FILE] [--forget]

It prints what it has seen as a table, and for each row the probability that two VMMs that fail equally often differ so
much or more (Fisher's exact test, two-sided). Exit status: 0, or 1 if not all boots were made, or if that probability is
below 0.05 and Ringside's failures are more.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
LAB = CHECKOUT / "build/lab"
TURNS = 2  # per L1, whose own start takes 10 s


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
    script = CHECKOUT / "tests/lab/boots_guest.sh"
    for kernel in kernels:
        made = lab("--kernel-version", kernel, "--guest-initrd", LAB / f"boots-{kernel}.cpio", "--module", "virtio_pci",
                   "--module", "virtio_blk", "--autorun", script, timeout=300)
        if made.returncode != 0:
            sys.exit(made.stdout)
    made = lab("--guest-disk", LAB / "boots.img", "--size", "64M", "--autorun", script, timeout=300)
    if made.returncode != 0:
        sys.exit(made.stdout)


def boots_in_one_lab(kernel, cpus):
    initrd, root = f"build/lab/boots-{kernel}.cpio", "build/lab/boots.img"
    image = f"build/lab/kernels/{kernel}/bzImage"
    done = lab("--peer-qemu", "--kernel-version", kernel, "--cpus", cpus, "--timeout", 0, "--file", "tests/lab/common.sh",
               "--file", "tests/lab/qemu.sh", "--file", image, "--file", initrd, "--file", root, "--", "sh",
               "tests/lab/boots.sh", "build/release/ringside", TURNS, image, initrd, root, timeout=TURNS * 4 * 160 + 120)
    boots = []
    for line in done.stdout.splitlines():
        words = line.split()
        if words[:1] == ["boot"] and len(words) == 5:
            boots.append({"vmm": words[1], "disk": words[2], "outcome": words[3], "seconds": int(words[4]),
                          "kernel": kernel, "cpus": cpus})
        elif boots and boots[-1]["outcome"] != "done":
            boots[-1].setdefault("console", []).append(line)
    if done.returncode != 0:
        print(f"\nthe lab itself ended with {done.returncode} after {len(boots)} boots")
    return boots


def report(boots):
    suspicious = False
    print(f"{'disk':6}{'VMM':10}{'boots':>7}{'failed':>8}{'seconds':>9}  how")
    for disk in ("no", "yes"):
        counts = []
        for vmm in ("ringside", "qemu"):
            mine = [boot for boot in boots if (boot["vmm"], boot["disk"]) == (vmm, disk)]
            failed = [boot["outcome"] for boot in mine if boot["outcome"] != "done"]
            times = sorted(boot["seconds"] for boot in mine)
            counts += [len(failed), len(mine)]
            print(f"{disk:6}{vmm:10}{len(mine):7}{len(failed):8}{times[len(times) // 2] if times else 0:9}  "
                  f"{', '.join(f'{failed.count(how)} {how}' for how in sorted(set(failed)))}")
        p = fisher(*counts)
        print(f"{'':6}p = {p:.2f}")
        suspicious |= p < 0.05 and counts[0] * counts[3] > counts[2] * counts[1]
    return suspicious


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=50, help="boots of each VMM without, and with, a disk (default: 50)")
    parser.add_argument("--cpus", type=int, default=2, help="processors of L1 (default: 2, where the emulator fails most)")
    parser.add_argument("--kernel", action="append", choices=["6.1", "6.12"], help="in turns (default: both)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no other L1 after so long")
    parser.add_argument("--results", type=pathlib.Path, default=LAB / "boots.jsonl")
    parser.add_argument("--forget", action="store_true", help="begin from nothing")
    options = parser.parse_args()
    kernels = options.kernel or ["6.1", "6.12"]
    if options.forget:
        options.results.unlink(missing_ok=True)
    prepare(kernels)
    boots = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    end = time.monotonic() + options.minutes * 60
    turn = len(boots)
    while len(boots) < 4 * options.each and time.monotonic() < end:
        new = boots_in_one_lab(kernels[turn % len(kernels)], options.cpus)
        turn += 1
        with options.results.open("a") as file:
            for boot in new:
                file.write(json.dumps(boot) + "\n")
        boots += new
        failed = sum(boot["outcome"] != "done" for boot in boots)
        print(f"\r{len(boots)} of {4 * options.each} boots, {failed} failed ", end="", flush=True)
    print()
    suspicious = report(boots)
    return 1 if suspicious or len(boots) < 4 * options.each else 0


if __name__ == "__main__":
    sys.exit(main())
