"""The tables of tools/compare lab-net: for each load and number of queue pairs, one for each number of
connections."""

from . import summary, table

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
    head = table.title(results, "Networks of stock Linux beside QEMU's, in the lab", _reference(results))
    return "\n\n".join(filter(None, [head, table.problems(results), *_blocks(results, "## "),
                                     _LEGEND])) + "\n"


def terminal(results):
    return "\n\n".join(filter(None, [_reference(results), *_blocks(results, ""), _LEGEND,
                                     table.problems(results)]))


def _reference(results):
    name = summary.reference(results)
    return "" if name is None else f"Ratios are to {name}."


def _blocks(results, heading):
    for target in results["targets"]:
        rows = summary.rows(results, target["name"])
        if not rows:
            continue
        yield f"{heading}{target['name']}: {target['text']}"
        for count in summary.job_keys(results, target["name"], "closed"):
            is_udp = any(count in row.points and row.points[count]["lost_share"] for row in rows)
            yield table.of_figures(results, rows, count, f"{count} connection{'s' * (count > 1)}",
                                   _UDP_FIGURES if is_udp else _FIGURES, _RATIO_COLUMN)
