"""tools/compare: see --help."""

import datetime
import json
import os
import signal
import sys

from . import (front, front_plots, front_table, kvm_exits, lab, lab_net, lab_net_plots, lab_net_table,
               lab_table, machine_info, net, net_contestants, net_options, net_plots, net_table,
               options as command_line, plots, restore, restore_options, restore_plots, restore_table,
               schedule, sweep, sweep_plots, sweep_table, table, vsock,
               vsock_contestants, vsock_plots, vsock_table)
from .common import (EXIT_BAD_INPUT, EXIT_FAILED, RESULTS_DIRECTORY, BadInput, MeasureError,
                     Progress)
from .contestants import entry, find_contestants, need
from .host import HostEngine
from .targets import Targets
from .vmms import GUEST

FORMAT = 1


def compare(arguments):
    options = command_line.parse(arguments)
    need_guest()
    found, missing = find_contestants(options)
    if not options.thinking:  # Which nobody does on the host.
        found += [HostEngine(engine) for engine in ("psync", "io_uring", "libaio")]
    return finish(measure_on_targets(found, missing, options), options)


def compare_sweep(arguments):
    options = command_line.parse_sweep(arguments)
    need_guest()
    found, missing = sweep.find_points(options)
    return finish(sweep.complete(measure_on_targets(found, missing, options), found), options)


def compare_front(arguments):
    options = command_line.parse_front(arguments)
    need_guest()
    found, missing = front.find_points(options)
    return finish(front.complete(measure_on_targets(found, missing, options), found, options),
                  options)


def need_guest():
    if not GUEST.exists():
        raise BadInput(f"no '{GUEST}': cmake --preset release && cmake --build --preset release")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        raise BadInput("'/dev/kvm' cannot be opened: 'ringside doctor' says what to do about it")


def measure_on_targets(found, missing, options):
    contestants = schedule.chosen(found, options, options.depths)
    settings = {"rw": options.rw, "rwmix": options.rwmix, "bs": options.bs,
                "depths": options.depths, "rates": options.rates, "open_loops": options.open_loops,
                "thinking": options.thinking}
    with Targets(options.targets, options.disk_dir, options.null_latency_us) as targets:
        return measure(contestants, targets, settings, missing, options)


def compare_net(arguments):
    options = net_options.parse_net(arguments)
    return measure_streams(net_contestants, net.NetTargets, net.settings_of(options), options)


def compare_vsock(arguments):
    options = net_options.parse_vsock(arguments)
    return measure_streams(vsock_contestants, vsock.VsockTargets, vsock.settings_of(options), options)


def compare_restore(arguments):
    options = restore_options.parse(arguments)
    need_guest()
    return finish(restore.measure(options, FORMAT), options)


def measure_streams(who, make_targets, settings, options):
    """Of networks and vsocks; `who` is the module that finds the contestants."""
    need_guest()
    found, missing = who.find_contestants(options)
    contestants = schedule.chosen(found, options, options.depths)
    kvm_exits.make_countable()
    with make_targets(options) as targets:
        results = measure(contestants, targets, settings, missing, options)
    return finish(results, options)


def compare_lab(arguments):
    return measure_in_lab(lab, command_line.parse_lab(arguments))


def compare_lab_net(arguments):
    return measure_in_lab(lab_net, command_line.parse_lab_net(arguments))


def measure_in_lab(module, options):
    options.ringside = need(options.ringside, "--ringside")
    progress = Progress(1)
    try:
        results = {"format": FORMAT, **module.run(options, progress)}
    finally:
        progress.clear()
    return finish(results, options)


def finish(results, options):
    """Writes and prints the results; returns the exit status."""
    directory = options.out or RESULTS_DIRECTORY / results["date"].replace(":", "")
    write(results, directory)
    print(json.dumps(results, indent=1) if options.json else tables_of(results).terminal(results))
    print(f"\nwritten to {directory}: results.json, table.md and plots (*.svg, *.png)",
          file=sys.stderr)
    if not results["samples"]:
        raise MeasureError("nothing was measured: what was chosen failed, or serves no target")
    if results["failures"] or (results["noise"] and not options.accept_noise):
        return EXIT_FAILED
    return 0


def measure(contestants, targets, load, missing, options):
    """Returns what results.json holds; `load` are the settings of what is asked of the guest."""
    settings = {"rates": (), **load, "wait": options.wait, "rounds": options.rounds,
                "warmup_ms": schedule.WARMUP_MS, "apart": options.keep_apart}
    settings["runtime_ms"] = options.runtime or schedule.runtime_ms(contestants, targets, settings,
                                                                    options.minutes)
    seconds = schedule.estimate_s(contestants, targets, settings)
    progress = Progress(seconds)
    progress.note(f"{len(contestants)} contestants, {options.rounds} rounds, "
                  f"{settings['runtime_ms']} ms a job: about {max(round(seconds / 60), 1)} min")
    rounds = schedule.Schedule(contestants, targets, settings, options, progress)
    try:
        rounds.run()
    finally:
        progress.clear()
    now = datetime.datetime.now().astimezone()
    return {"format": FORMAT, "date": now.isoformat("T", "seconds"), "command": options.command,
            "machine": machine_info.describe(options.ringside),
            "settings": settings, "missing": missing, "failures": rounds.failures,
            "noise": rounds.noise,
            "contestants": list(map(entry, contestants)),
            "targets": [{"name": target.name, "text": target.text} for target in targets],
            "samples": rounds.samples}


def write(results, directory):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(results) + "\n")
    draw(results, directory)


def draw(results, directory):
    """table.md and the plots."""
    (directory / "table.md").write_text(tables_of(results).markdown(results))
    _shown_by(results)[1].draw(results, directory)


def tables_of(results):
    return _shown_by(results)[0]


def _shown_by(results):
    """Returns the modules that make tables and plots of such results."""
    if net.is_net(results):
        return net_table, net_plots
    if vsock.is_vsock(results):
        return vsock_table, vsock_plots
    if restore.is_restore(results):
        return restore_table, restore_plots
    if front.is_front(results):
        return front_table, front_plots
    if lab_net_table.is_lab_net(results):
        return lab_net_table, lab_net_plots
    if sweep.is_sweep(results):
        return sweep_table, sweep_plots
    if lab_table.is_lab(results):
        return lab_table, plots
    return table, plots


def report(arguments):
    options = command_line.parse_report(arguments)
    try:
        results = json.loads(options.results.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"'{options.results}' cannot be read: {error}") from error
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        raise BadInput(f"'{options.results}' is no results.json of format {FORMAT}")
    directory = options.out or options.results.parent
    directory.mkdir(parents=True, exist_ok=True)
    draw(results, directory)
    print(tables_of(results).terminal(results))
    return 0


def end_on_signals():
    """So that files and VMMs are taken away."""
    def handle(number, _):
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handle)


def main():
    end_on_signals()
    command, *arguments = sys.argv[1:] or [""]
    commands = {"report": report, "sweep": compare_sweep, "front": compare_front,
                "lab": compare_lab, "lab-net": compare_lab_net, "net": compare_net,
                "vsock": compare_vsock, "restore": compare_restore}
    try:
        if command in commands:
            return commands[command](arguments)
        return compare(sys.argv[1:])
    except BadInput as error:
        print(f"compare: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except MeasureError as error:
        print(f"compare: {error}", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
