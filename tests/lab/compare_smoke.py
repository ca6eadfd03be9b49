#!/usr/bin/python3
"""A small comparison in the lab, from end to end: compare_smoke.py RINGSIDE."""

import sys

import smoke
from comparekit import lab, lab_table, options as command_line, summary

# The contestants, and the depths by load.
FAMILIES = ["Ringside", "QEMU", "QEMU"]
DEPTHS = {"lab": [1, 16], "lab mixed": [1, 32]}
FIGURES = ("iops", "p50", "p99", "cpu_ns_per_io", "host_cpu_ns_per_io", "exits_per_io",
           "interrupts_per_io")


def problems(results):
    """What is wrong with the results, a line each."""
    yield from results["failures"]
    text = lab_table.markdown(results)
    for target, depths in DEPTHS.items():
        rows = summary.rows(results, target)
        if [row.family for row in rows] != FAMILIES:
            yield f"{target}: rows for {[row.name for row in rows]}, expected {FAMILIES}"
        for row in rows:
            if row.name not in text:
                yield f"{row.name} is not in the table"
            if list(row.points) != depths:
                yield f"{target}: {row.name} has depths {list(row.points)}, expected {depths}"
            for depth, point in row.points.items():
                for name in FIGURES:
                    if point[name] is None or point[name].median <= 0:
                        yield f"{target}: {row.name} at depth {depth}: {name} is {point[name]}"


def main():
    options = command_line.parse_lab(["--ringside", sys.argv[1], "--rounds", "1", "--runtime", "1s",
                                      "--depths", "1,16", "--jobs", "plain,mixed",
                                      "--skip", "Ringside no poll"])
    return smoke.judge(lab, lab_table, options, problems)


if __name__ == "__main__":
    sys.exit(main())
