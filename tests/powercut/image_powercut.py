#!/usr/bin/python3
"""What a power cut leaves of a commit, and of backups that are applied:

  image_powercut.py IMAGE_RIG [all]

Records both, then runs tools/powercut with every flush boundary and 200 random points, or with all
points. At each one has to see what was there or what comes, and what was cut off has to be finished."""

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

RIG = str(Path(sys.argv[1]).resolve())
POINTS = ["--points", "all"] if sys.argv[2:] == ["all"] else ["--points", "flushes",
                                                              "--points", "200"]
POWERCUT = Path(__file__).resolve().parents[2] / "tools" / "powercut"


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)


def must(*words):
    done = run(*words)
    if done.returncode != 0:
        sys.exit(f"FAIL: {shlex.join(map(str, words))}: {done.stdout}{done.stderr}")


def cut(directory, verb):
    """Returns whether all images of a record are fine."""
    must(RIG, f"record-{verb}", directory)
    check = shlex.join([RIG, f"check-{verb}", "{}", str(directory), str(directory)])
    done = run(POWERCUT, directory / "record", "--image", directory / "before", "--check", check,
               *POINTS, "--seed", "23", "--torn", "--json")
    if done.returncode == 2:
        sys.exit(f"FAIL: {done.stderr}")
    result = json.loads(done.stdout)
    print(verb, {name: value for name, value in result.items() if name != "failures"})
    for failure in result["failures"][:10]:
        print(f"FAIL: {failure['point']}:{failure['subset']}: {failure['output']}")
    return done.returncode == 0 and result["flushes"] >= 4


def main():
    fine = True
    # The apply is first: the commit changes the base.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        must(RIG, "make", directory)
        for verb in ("apply", "commit"):
            fine = cut(directory, verb) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
