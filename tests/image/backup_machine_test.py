#!/usr/bin/python3
"""The bare-metal guest writes on an overlay, is backed up, and goes on, five times; then the base and
the five backups have to be the disk again; and a base that somebody may write is refused:

  backup_machine_test.py RINGSIDE GUEST_ELF"""

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RINGSIDE, GUEST = (str(Path(word).resolve()) for word in sys.argv[1:3])
DISK = 16 << 20
BACKUPS = 5
SKIPPED = 77


def must(*words):
    done = subprocess.run([RINGSIDE, *map(str, words)], stdin=subprocess.DEVNULL, timeout=60,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0 or "FAIL" in done.stdout:
        sys.exit(f"FAIL: {words}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_writers_are_noticed(base, top):
    """Whoever has the base open for writing has no lock, and is in the way all the same."""
    with open(base, "r+b"):
        done = subprocess.run([RINGSIDE, "run", "--kernel", GUEST, "--disk",
                               f"base={base},overlay={top}"], stdin=subprocess.DEVNULL, timeout=60,
                              capture_output=True, text=True, check=False)
    says = f"base '{base}' is open for writing by process {os.getpid()} "
    if done.returncode != 2 or says not in done.stderr:
        sys.exit(f"FAIL: a writer of the base: {done.returncode} {done.stderr}")


def main():
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("there is no /dev/kvm on this host")
        return SKIPPED
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        base, top, restored = (directory / each for each in ("base", "top.cow", "restored"))
        base.write_bytes(os.urandom(DISK))
        shutil.copyfile(base, restored)
        backups = []
        for number in range(1, BACKUPS + 1):
            must("run", "--kernel", GUEST, "--memory", "16M", "--disk",
                 f"base={base},overlay={top}", "--cmdline",
                 f"rw=randwrite bs=4k runtime=20ms warmup=0ms seed={number}")
            backups.append(directory / f"b{number}")
            print(must("image", "diff", top, backups[-1]), end="")
        expected = directory / "expected"
        must("image", "check", "--base", base, top)
        must("image", "flatten", "--base", base, top, expected)
        must("image", "apply", restored, *backups)
        if not filecmp.cmp(restored, expected, shallow=False):
            sys.exit("FAIL: the backups are not the disk")
        check_writers_are_noticed(base, top)
        # And the overlay into its base, from which a machine then boots.
        must("image", "commit", "--base", base, top)
        if not filecmp.cmp(base, expected, shallow=False):
            sys.exit("FAIL: the base is not the disk")
        must("run", "--kernel", GUEST, "--memory", "16M", "--disk", f"path={base}", "--cmdline",
             "rw=randread runtime=5ms warmup=0ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
