"""The tables of tools/compare restore: what all targets come to, then one for each."""

from . import restore, table
from .restore import BARE, COMMAND, LIBRARY

_LEGEND = """\
Milliseconds from before a program's start, or before the snapshot is opened where that is done in one
process, to the first byte of the guest: medians of the rounds. spread: half of what lies between the
quarters. beyond bare: the median of what a round's run took longer than the bare one of that round.
ratio: p50 to the command's. bare: the least that KVM takes, in a program that has no machine; it reads the
snapshot and loads its state by the library's own code. Ringside library: in the same process as that. Ringside
fork: there, too, of a template that has been read before."""
_SAVES = (("from Pause to paused", "pause_ns"), ("it stands still, from there to Resume", "paused_ns"),
          ("of that, the state and the memory's first piece", "state_ns"),
          ("the copy of the other memory", "copy_ns"), ("until all is on the disk", "disk_ns"))
_PEER = "Firecracker"


def markdown(results):
    """The whole of table.md."""
    head = table.headed(results, "Restores beside each other", _how(results))
    return "\n\n".join(filter(None, [head, table.problems(results), *_blocks(results, "## "), _LEGEND])) + "\n"


def terminal(results):
    return "\n\n".join(filter(None, [*_blocks(results, ""), _LEGEND, table.problems(results)]))


def _how(results):
    return (f"The time until the guest of a saved machine goes on, in {results['settings']['rounds']} "
            "interleaved rounds.")


def _blocks(results, mark):
    yield f"{mark}All sizes"
    yield _all(results)
    for target in results["targets"]:
        rows = restore.rows(results, target["name"])
        if rows:
            yield f"{mark}{target['name']}: {target['text']}"
            yield _of_target(rows)
    if results["saves"]:
        yield f"{mark}A save"
        yield _of_saves(results)


def _all(results):
    """A line a target: what is asked of a restore."""
    lines = []
    for target in results["targets"]:
        by_name = {row.name: row for row in restore.rows(results, target["name"])}
        p50 = {name: row.p50 for name, row in by_name.items()}
        library = by_name.get(LIBRARY)
        lines.append([target["name"], *(_number(p50.get(name)) for name in (BARE, LIBRARY, COMMAND, _PEER)),
                      _number(library and library.beyond), _ratio(p50.get(COMMAND), p50.get(_PEER))])
    return table.layout(["p50, ms", BARE, LIBRARY, COMMAND, _PEER, "library beyond bare",
                         f"command ÷ {_PEER}"], lines)


def _of_target(rows):
    command = next((row.p50 for row in rows if row.name == COMMAND), None)
    return table.layout(["", "p50, ms", "p99, ms", "spread", "beyond bare, ms", "ratio"],
                        [[table.marked_name(row), _number(row.p50), _number(row.p99), f"±{row.spread:.0%}",
                          _number(row.beyond), _ratio(row.p50, command)] for row in rows])


def _of_saves(results):
    settings = results["settings"]
    lines = []
    for text, name in _SAVES:
        times = sorted(save[name] / 1e6 for save in results["saves"])
        lines.append([text, *(_number(restore.percentile(times, percent)) for percent in (50, 99))])
    return table.layout([f"{settings['saved_mib']} MiB, {settings['written_mib']} of them written to",
                         "p50, ms", "p99, ms"], lines)


def _number(value):
    return "-" if value is None else f"{value:.2f}"


def _ratio(value, to):
    return "-" if value is None or not to else f"{value / to:.2f}"
