"""The plots of tools/compare vsock: for each kind of job and load how much goes through above, what it
costs below, a bar a contestant."""

from . import net_plots, summary, vsock_table

_PANELS = (("iops", 1000, "thousand a second"), ("host_cpu_ns_per_io", 1000, "CPU for one less vCPU, us"))


def draw(results, directory):
    net_plots.draw_bars(results, directory / "vsock", "Vsocks beside each other",
                        net_plots.columns_of(results, vsock_table.load), _PANELS)
