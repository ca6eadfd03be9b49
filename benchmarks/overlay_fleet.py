#!/usr/bin/python3
"""Many machines with the bare-metal guest on one base at once, each with an overlay of its own:

  overlay_fleet.py RINGSIDE GUEST_ELF [MACHINES]

Says how long all took to start and to have done some reads and writes, what they take of memory, and
what making an overlay takes. Exit status 1 if one takes more than 2 MiB beside its guest's memory, if
the base changed, or if there is a file that should not be."""

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RINGSIDE, GUEST = (str(Path(word).resolve()) for word in sys.argv[1:3])
MACHINES = int(sys.argv[3]) if len(sys.argv) > 3 else 200
BASE_BYTES = 64 << 20
MOST_PSS = 2 << 20
PATIENCE = 120
SKIPPED = 77
MAKINGS = 30


def start(base, overlay, output):
    with open(output, "wb") as file:
        return subprocess.Popen(
            [RINGSIDE, "run", "--kernel", GUEST, "--memory", "16M",
             "--disk", f"base={base},overlay={overlay}",
             # Then it halts for good.
             "--cmdline", "rw=randrw rwmix=80 runtime=5ms warmup=0ms end=halt"],
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)


def has_measured(output):
    text = output.read_text(errors="replace")
    if "FAIL" in text or "ringside: error" in text:
        sys.exit(f"FAIL: {text}")
    return '"rw"' in text


def memory(pid):
    """Returns what a process takes by its share of each page: in all, and of the guest's memory."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split()[:2]
        fields[name.rstrip(":")] = int(value) * 1024
    return fields["Pss"], fields["Pss_Shmem"]


def cached(path):
    """Returns how much of a file is in the page cache."""
    done = subprocess.run(["fincore", "--bytes", "--json", path], capture_output=True, text=True,
                          check=True)
    return int(json.loads(done.stdout)["fincore"][0]["res"])


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def median_ms(words, after=lambda: None):
    times = []
    for _ in range(MAKINGS):
        begin = time.monotonic()
        subprocess.run(words, check=True, capture_output=True, timeout=60)
        times.append(time.monotonic() - begin)
        after()
    return statistics.median(times) * 1000


def say_what_making_takes(directory, base):
    overlay = directory / "made.cow"
    make = [RINGSIDE, "image", "create", "--base", base, overlay]
    print(f"medians of {MAKINGS} processes: --version "
          f"{median_ms([RINGSIDE, '--version']):.2f} ms, an overlay made "
          f"{median_ms(make, overlay.unlink):.2f} ms, and flushed "
          f"{median_ms([*make, '--sync'], overlay.unlink):.2f} ms")


def run_all(directory, base, logs):
    """Returns how it went: processes, seconds."""
    processes = []
    try:
        begin = time.monotonic()
        outputs = []
        for number in range(MACHINES):
            outputs.append(logs / f"{number}.txt")
            processes.append(start(base, directory / f"vm{number}.cow", outputs[-1]))
        waiting = outputs
        while waiting:
            waiting = [output for output in waiting if not has_measured(output)]
            if time.monotonic() - begin > PATIENCE:
                sys.exit(f"FAIL: {len(waiting)} machines have not started within {PATIENCE} s")
            time.sleep(0.02)
        seconds = time.monotonic() - begin
        sizes = [memory(process.pid) for process in processes]
        return seconds, sizes, cached(base)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def main():
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("there is no /dev/kvm on this host")
        return SKIPPED
    with tempfile.TemporaryDirectory(dir=".") as name, tempfile.TemporaryDirectory() as log_name:
        directory, logs = Path(name).resolve(), Path(log_name)
        base = directory / "base.img"
        base.write_bytes(os.urandom(BASE_BYTES))
        os.sync()
        before = digest(base), base.stat().st_mtime_ns
        say_what_making_takes(directory, base)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        before_all = used.ru_utime + used.ru_stime
        seconds, sizes, in_cache = run_all(directory, base, logs)
        own = [pss - guest for pss, guest in sizes]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{MACHINES} machines: started, and done with 5 ms of I/O each, in {seconds:.2f} s; "
              f"{used.ru_utime + used.ru_stime - before_all:.2f} s of processors")
        print(f"memory of each (PSS): median {statistics.median(own) / 1024:.0f} KiB, at most "
              f"{max(own) / 1024:.0f} KiB; with what the guest has touched "
              f"{max(pss for pss, _ in sizes) / 1024:.0f} KiB at most")
        print(f"of the base's {BASE_BYTES >> 20} MiB {in_cache >> 20} MiB are in the page cache, once")
        names = {path.name for path in directory.iterdir()}
        wrong = []
        if max(own) > MOST_PSS:
            wrong.append("a machine takes more than 2 MiB")
        if (digest(base), base.stat().st_mtime_ns) != before:
            wrong.append("the base has changed")
        if names != {"base.img"} | {f"vm{number}.cow" for number in range(MACHINES)}:
            wrong.append(f"there are other files: {sorted(names)}")
        for each in wrong:
            print(f"FAIL: {each}")
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
