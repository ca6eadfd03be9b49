"""What the tests of tools/compare have in common: a host with or without QEMU, and results.json of
a run that never was."""

import contextlib
import json
import tempfile
from pathlib import Path
from unittest import mock

from comparekit import __main__ as main
from comparekit import targets

DISK = targets.Target("disk", "file on ext4", "/data/x.img", 1 << 30, True)


def drawn(results, plot):
    """What 'tools/compare report' returns for these, and the plot of that name that it draws."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "results.json"
        path.write_text(json.dumps(results))
        with mock.patch("builtins.print"):
            status = main.report([str(path)])
        return status, (Path(directory) / plot).read_text()


@contextlib.contextmanager
def host(qemu=True):
    """Programs are there and of version 10.0, and so is io_uring."""
    with mock.patch("comparekit.contestants.first_line", return_value="version 10.0"), \
            mock.patch("comparekit.contestants.io_uring_works", return_value=True), \
            mock.patch("shutil.which", lambda name: name if qemu or "qemu" not in name else None):
        yield


def word_after(point, option, target=DISK):
    command = point.command(target, "", "")
    return command[command.index(option) + 1]


def job(**changes):
    line = {"qd": 1, "rate": 0, "iops": 2000, "host_cpu_share": 0.25, "host_cpu_ns_per_io": 9000,
            "kicks_per_io": 0.5,
            "latency_ns": {"mean": 3000, "p50": 2000, "p99": 5000, "p999": 6000}}
    return {**line, **changes}


def sample(contestant, number, jobs, target="disk", loop="closed"):
    return {"target": target, "contestant": contestant, "round": number, "loop": loop,
            "noisy": None, "jobs": jobs, "self": {}}


def results_of(contestants, samples, command):
    """`contestants`: (name, family) of each."""
    return {"format": 1, "date": "2026-01-02T03:04:05+00:00", "command": command,
            "machine": {"cpu": "Some CPU", "processors": 2, "memory_gib": 24, "kernel": "6.1",
                        "distribution": "Debian", "kvm": "kvm_amd", "hypervisor": "bare metal",
                        "commit": "abc"},
            "settings": {"rw": "randread", "bs": "4k", "depths": [1], "wait": "poll", "rounds": 2,
                         "runtime_ms": 300},
            "missing": {}, "failures": [], "noise": [],
            "contestants": [{"name": name, "family": family, "version": "1", "note": ""}
                            for name, family in contestants],
            "targets": [{"name": "disk", "text": "file on ext4"}], "samples": samples}
