#!/usr/bin/python3
"""A small comparison in the lab, from end to end: compare_smoke.py RINGSIDE."""

import argparse
import sys

from comparekit import lab, summary, table
from comparekit.common import MeasureError, Progress

DEPTHS = (1, 16)
FAMILIES = ["Ringside", "QEMU", "QEMU"]


def problems(results):
    """What is wrong with the results, a line each."""
    rows = summary.rows(results, "lab")
    text = table.markdown(results)
    if [row.family for row in rows] != FAMILIES:
        yield f"rows for {[row.name for row in rows]}, expected {FAMILIES}"
    for row in rows:
        if row.name not in text:
            yield f"{row.name} is not in the table"
        for depth in DEPTHS:
            point = row.points.get(depth)
            if point is None:
                yield f"{row.name} has nothing at depth {depth}"
                continue
            for name in ("iops", "p50", "p99", "cpu_ns_per_io", "host_cpu_ns_per_io"):
                if point[name] is None or point[name].median <= 0:
                    yield f"{row.name} at depth {depth}: {name} is {point[name]}"


def main():
    options = argparse.Namespace(command="tests/lab/compare_smoke.py", ringside=sys.argv[1], rounds=1,
                                 rw="randread", rwmix=70, bs="4k", depths=DEPTHS, runtime=1000,
                                 nvme=False, noise_limit=5)
    try:
        results = lab.run(options, Progress(1))
    except MeasureError as error:
        print(f"FAIL: {error}")
        return 1
    print(table.markdown(results))
    found = list(problems(results))
    print("".join(f"FAIL: {problem}\n" for problem in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
