"""The tables of tools/compare lab-net: for each load and number of queue pairs, one for each number of
connections."""

from . import table

_LEGEND = """\
Medians of the rounds with half of lowest to highest; EMULATED time (TCG): the rows compare with each
other only. ratio: MiB/s ÷ the reference's. exits: of the guest, as KVM counts them; interrupts: of its
network, as it counts them; CPU: of the VMM and the kernel's threads that serve it, ms; less vCPU:
without the vCPUs' threads; all a MiB. lost: a share of the datagrams; reordered: how many."""

# Heading, the figure's name, what it is divided by.
_FIGURES = (("MiB/s", "iops", 1), ("exits", "exits_per_io", 1), ("interrupts", "interrupts_per_io", 1),
            ("CPU", "cpu_ns_per_io", 1e6), ("less vCPU", "host_cpu_ns_per_io", 1e6))
_UDP_FIGURES = (*_FIGURES, ("lost", "lost_share", 1), ("reordered", "reordered", 1))
_RATIO_COLUMN = 2


def is_lab_net(results):
    return "lab_net" in results["settings"]


def markdown(results):
    """The whole of table.md."""
    head = table.title(results, "Networks of stock Linux beside QEMU's, in the lab", table.whose_ratios(results))
    return "\n\n".join(filter(None, [head, table.problems(results), *_blocks(results, "## "),
                                     _LEGEND])) + "\n"


def terminal(results):
    return "\n\n".join(filter(None, [table.whose_ratios(results), *_blocks(results, ""), _LEGEND,
                                     table.problems(results)]))


def _blocks(results, mark):
    return table.of_targets(results, mark, lambda count: f"{count} connection{'s' * (count > 1)}",
                            _figures, _RATIO_COLUMN)


def _figures(rows, count):
    is_udp = any(count in row.points and row.points[count]["lost_share"] for row in rows)
    return _UDP_FIGURES if is_udp else _FIGURES
