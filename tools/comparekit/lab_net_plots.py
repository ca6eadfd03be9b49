"""The plots of tools/compare lab-net: for each load how much goes through above, what it costs below, a
bar a contestant."""

from .net_plots import columns_of, draw_bars

_PANELS = (("iops", 1, "MiB a second"), ("cpu_ns_per_io", 1e6, "CPU a MiB, ms"))


def draw(results, directory):
    columns = columns_of(results, lambda count: f"{count} connections")
    draw_bars(results, directory / "lab-net", "Networks of stock Linux, in the lab", columns, _PANELS)
