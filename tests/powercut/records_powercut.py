#!/usr/bin/python3
"""What a power cut leaves of a disk that the bare-metal guest writes its records on:

  records_powercut.py RINGSIDE GUEST_ELF RECORDS_CHECK raw|overlay|chain [all]

Runs the guest on a recorded disk, then tools/powercut with every flush boundary and 200 random
points, or with all points. What the guest calls durable has to be there. The disk is a raw image,
an overlay on one, or an overlay on an overlay: of these what goes to the file is recorded."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

RINGSIDE, GUEST, CHECK = (str(Path(word).resolve()) for word in sys.argv[1:4])
DISK = sys.argv[4]
POINTS = ["--points", "all"] if sys.argv[5:] == ["all"] else ["--points", "flushes",
                                                              "--points", "200"]
if "all" not in POINTS:  # a process for each image
    POINTS += ["--subsets", "4", "--singles", "4"]
POWERCUT = Path(__file__).resolve().parents[2] / "tools" / "powercut"
SEED = 17
RECORDS = 512
SKIPPED = 77


def run(disk, seed):
    """Returns what the guest says."""
    done = subprocess.run(
        [RINGSIDE, "run", "--kernel", GUEST, "--memory", "16M", "--disk", disk,
         "--cmdline", f"records=1 seed={seed}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    if f"guest: records done {RECORDS}" not in done.stdout:
        sys.exit(f"FAIL: the guest: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def run_guest(directory):
    """Returns the console's text, a record, the image, that as it was before (None: zeroes), and
    what it stands on."""
    image, record, before = directory / "image", directory / "record", directory / "before"
    raw = directory / "base" if DISK != "raw" else image
    with open(raw, "wb") as file:
        file.truncate(RECORDS * 4096)
    if DISK == "raw":
        return run(f"path={image},record={record}", SEED), record, image, None, []
    chain = [raw]
    if DISK == "chain":
        chain.append(directory / "middle")
        run(f"base={raw},overlay={chain[1]}", SEED + 1)
    subprocess.run([CHECK, "--make", image, *chain], check=True)
    subprocess.run(["cp", "--sparse=always", image, before], check=True)
    text = run(f"base={'+'.join(map(str, chain))},overlay={image},record={record},record-below=on",
               SEED)
    return text, record, image, before, chain


def powercut(*words):
    return subprocess.run([POWERCUT, *words], capture_output=True, text=True, timeout=600,
                          check=False)


def main():
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("there is no /dev/kvm on this host")
        return SKIPPED
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        text, record, image, before, chain = run_guest(directory)
        console = directory / "console"
        console.write_text(text)
        kept = directory / "kept"
        from_before = [] if before is None else ["--image", before]
        done = powercut(record, *from_before, "--only", "end:all", "--keep", kept)
        # Of an overlay, what it has as it is opened and closed is not recorded.
        data = -RECORDS * 4096
        if done.returncode != 0 or kept.read_bytes()[data:] != image.read_bytes()[data:]:
            print(f"FAIL: the replayed record is not the image: {done.stderr}")
            return 1
        check = shlex.join([CHECK, "{}", str(console), str(SEED), *map(str, chain)])
        done = powercut(record, *from_before, "--check", check, *POINTS, "--seed", str(SEED), "--torn",
                        "--json")
        if done.returncode == 2:
            print(f"FAIL: {done.stderr}")
            return 1
        result = json.loads(done.stdout)
    print({name: value for name, value in result.items() if name != "failures"})
    for failure in result["failures"][:10]:
        print(f"FAIL: {failure['point']}:{failure['subset']}: {failure['output']}")
    # Or the promises would be of other flushes than those of the record. An overlay's are two each,
    # or one if the flush before had all of its blocks already.
    promises = text.count("guest: durable ")
    most = promises * (1 if DISK == "raw" else 2)
    if not promises <= result["flushes"] <= most:
        print(f"FAIL: {result['flushes']} flushes are recorded, and the guest says:\n{text}")
        return 1
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
