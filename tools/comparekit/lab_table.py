"""The tables of a comparison in the lab: for each load, one for each number of requests in flight."""

from . import table

_LEGEND = """\
Medians of the rounds with half of lowest to highest. ratio: IOPS ÷ the reference's. mean, p50, p99:
latency, us. exits: of the guest, as KVM counts them; interrupts: of the disk, as the guest counts them;
both an I/O. CPU: the VMM's, an I/O, us, what polling burns included; less vCPU: without the vCPUs'
threads. Of jobs that ran at the same time, exits, interrupts and CPU are those of all together."""

# Heading, the figure's name, what it is divided by.
_FIGURES = (("kIOPS", "iops", 1000), ("mean", "mean", 1000), ("p50", "p50", 1000),
            ("p99", "p99", 1000), ("exits", "exits_per_io", 1),
            ("interrupts", "interrupts_per_io", 1), ("CPU", "cpu_ns_per_io", 1000),
            ("less vCPU", "host_cpu_ns_per_io", 1000))
_RATIO_COLUMN = 2


def is_lab(results):
    return all(target["name"].partition(" ")[0] == "lab" for target in results["targets"])


def markdown(results):
    """The whole of table.md."""
    head = table.title(results, "Ringside beside QEMU, in the lab", table.whose_ratios(results))
    return "\n\n".join(filter(None, [head, table.problems(results), *_blocks(results, "## "),
                                     _LEGEND, table.own_counters(results)])) + "\n"


def terminal(results):
    return "\n\n".join(filter(None, [table.whose_ratios(results), *_blocks(results, ""), _LEGEND,
                                     table.problems(results)]))


def _blocks(results, mark):
    return table.of_targets(results, mark, lambda depth: f"{depth} in flight",
                            lambda _rows, _depth: _FIGURES, _RATIO_COLUMN)
