#!/usr/bin/python3
"""A small tools/compare restore from end to end: compare_restore_smoke.py. Of the release build: that is
what it measures."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from comparekit import restore

SKIPPED = 77
PATIENCE_S = 100
COMMAND = [sys.executable, "-m", "comparekit", "restore", "--accept-noise", "--rounds", "2", "--memory", "64M",
           "--saves", "1", "--skip", "Firecracker"]
NAMES = [restore.BARE, restore.LIBRARY, restore.FORK, restore.COMMAND]


def compare(directory):
    """Returns what is wrong with a run, a line each."""
    result = subprocess.run([*COMMAND, "--disk-dir", directory, "--out", f"{directory}/out"],
                            capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if result.returncode != 0:
        return [f"status {result.returncode}: {result.stdout}{result.stderr}"]
    print(result.stdout)
    results = json.loads((Path(directory) / "out" / "results.json").read_text())
    found = list(results["failures"])
    for target in ("64M warm", "64M cold"):
        names = [row.name for row in restore.rows(results, target)]
        if names != NAMES:
            found.append(f"{target}: rows for {names}")
    if len(results["saves"]) != 1 or min(results["saves"][0].values()) <= 0:
        found.append(f"saves: {results['saves']}")
    left = os.listdir(directory)
    return found + ([f"left behind: {left}"] if left != ["out"] else [])


def main():
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("SKIP '/dev/kvm' cannot be opened on this host")
        return SKIPPED
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        found = compare(directory)
    print("".join(f"FAIL: {problem}\n" for problem in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
