#!/usr/bin/python3
"""What a power cut leaves of an ext4 that stock Linux writes on:

  powercut_lab.py RINGSIDE KERNEL INITRD [all]

The guest runs in the lab, on a recorded disk. Then, outside of it, tools/powercut makes the images of
every flush boundary and of 200 random points, or of all, and ext4_check.py looks at each."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SEED = 23
FILES = ("before", "after", "record")
# Enough to see what a flush is for, at 30 ms for each image.
FEW = ["--points", "flushes", "--points", "200", "--singles", "2", "--subsets", "2"]


def make_record(directory, ringside, kernel, initrd):
    output = "/tmp/powercut"  # in the lab
    results = [word for name in FILES for word in ("--get", f"{output}/{name}:{directory / name}")]
    done = subprocess.run(
        [ROOT / "tools/lab", "--tries", "3", "--timeout", "200", "--file", "tests/lab/common.sh",
         "--file", "/usr/sbin/mke2fs", *results, "--", "sh", "tests/lab/powercut_linux.sh", ringside,
         kernel, initrd, output], cwd=ROOT, check=False)
    return done.returncode


def powercut(directory, *words):
    return subprocess.run(
        [ROOT / "tools/powercut", directory / "record", "--image", directory / "before", *words],
        stdout=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "AFTER": str(directory / "after")})


def main(arguments):
    ringside, kernel, initrd, *rest = arguments
    how = ["--points", "all", "--singles", "4"] if rest == ["all"] else FEW
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        if (status := make_record(directory, ringside, kernel, initrd)) != 0:
            return status
        if keep := os.environ.get("POWERCUT_KEEP"):  # to look at it by hand
            shutil.copytree(directory, keep, dirs_exist_ok=True)
        kept = directory / "kept"
        done = powercut(directory, "--only", "end:all", "--keep", kept)
        if done.returncode != 0 or kept.read_bytes() != (directory / "after").read_bytes():
            print("FAIL: the replayed record is not the image")
            return 1
        done = powercut(directory, "--scratch", "--seed", str(SEED), *how, "--json", "--check",
                        f"/usr/bin/python3 -IS {HERE / 'ext4_check.py'} {{}}")
        if done.returncode == 2:
            return 1
        result = json.loads(done.stdout)
        print({name: value for name, value in result.items() if name != "failures"})
        for failure in result["failures"][:10]:
            print(f"FAIL: {failure['point']}:{failure['subset']}: {failure['output']}")
        return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
