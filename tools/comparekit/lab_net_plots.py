"""The plots of tools/compare lab-net: for each load how much goes through above, what it costs below, a
bar a contestant."""

from . import summary
from .net_plots import draw_bars

_PANELS = (("iops", 1, "MiB a second"), ("cpu_ns_per_io", 1e6, "CPU a MiB, ms"))


def draw(results, directory):
    columns = []
    for target in results["targets"]:
        rows = summary.rows(results, target["name"])
        columns += [(f"{target['name']}, {count} connections",
                     [(row, row.points[count]) for row in rows if count in row.points])
                    for count in summary.job_keys(results, target["name"], "closed")]
    draw_bars(results, directory / "lab-net", "Networks of stock Linux, in the lab", columns, _PANELS)
