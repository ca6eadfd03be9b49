#!/usr/bin/python3
"""A small comparison of networks in the lab, from end to end: compare_net_smoke.py RINGSIDE. Stock Linux
with two queue pairs, and through the kernel, too."""

import sys

import smoke
from comparekit import lab_net, lab_net_table, options as command_line, summary

CONTESTANTS = ["Ringside", "QEMU", "Ringside vhost"]
TARGETS = ["out, 2 pairs", "in, 2 pairs", "udp-in, 2 pairs"]


def problems(results):
    """What is wrong with the results, a line each."""
    yield from results["failures"]
    for target in TARGETS:
        rows = summary.rows(results, target)
        names = [row.name if row.family == "Ringside" else row.family for row in rows]
        if names != CONTESTANTS:
            yield f"{target}: rows for {names}, expected {CONTESTANTS}"
        for row in rows:
            reordered = [point["reordered"] for point in row.points.values()]
            if row.family == "Ringside" and any(figure and figure.high > 0 for figure in reordered):
                yield f"{target}: {row.name} has changed the order of datagrams"


def main():
    options = command_line.parse_lab_net(
        ["--ringside", sys.argv[1], "--rounds", "1", "--runtime", "1s", "--pairs", "2",
         "--connections", "8", "--loads", "out,in,udp-in", "--skip", "QEMU*vhost"])
    return smoke.judge(lab_net, lab_net_table, options, problems)


if __name__ == "__main__":
    sys.exit(main())
