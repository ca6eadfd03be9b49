"""A sweep's plots: what polling wins above, what it costs below, against its limit."""

from functools import partial

from . import plots, summary, sweep_table

# name of a figure: axis, what it is divided by
_AXES = {"iops": ("thousand I/Os a second", 1000), "p50": ("median latency, us", 1000),
         "p99": ("p99 latency, us", 1000),
         "host_cpu_share": ("CPU less vCPU, % of a processor", 0.01)}
_PLOTS = (("sweep", "closed", "How long to poll", ("iops", "host_cpu_share")),
          ("sweep-open-loop", "open", "How long to poll (Poisson arrivals)",
           ("p50", "p99", "host_cpu_share")))


def draw(results, directory):
    """Writes all plots for which there are figures."""
    curves = {contestant["curve"]: contestant["family"] for contestant in results["contestants"]}
    style = plots.Styles([{"name": name, "family": family} for name, family in curves.items()])
    for name, loop, title, figures in _PLOTS:
        columns = [(sweep_table.heading(target, loop, key),
                    summary.sweep_rows(results, target["name"], loop, key))
                   for target in results["targets"]
                   for key in summary.job_keys(results, target["name"], loop)]
        panels = [partial(_against_limit, name=figure) for figure in figures]
        plots.draw_figure(results, directory / name, title, columns, panels, style)


def _against_limit(axis, found, style, name):
    label, unit = _AXES[name]
    for row in found:
        plots.draw_band(axis, row, name, unit, style)
    limits = sorted({limit for row in found for limit in row.points})
    # Octaves, and room for 0 on their left.
    axis.set_xscale("symlog", base=2, linthresh=1)
    axis.set_xticks(limits, [str(limit) for limit in limits])
    axis.set_xlim(left=-0.2)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("polling limit, us")
    axis.set_ylabel(label)
