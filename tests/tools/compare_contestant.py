"""A VMM for the tests of tools/compare, which is a shell script, with targets and the line of a job."""

from comparekit import contestants, targets

DISK = targets.Target("disk", "file on ext4", "/data/a,b.img", 1 << 30, True)
CACHED = targets.Target("tmpfs", "file on tmpfs", "/dev/shm/x", 1 << 28, False)
NULL = targets.Target("null", "null backend", "", 1 << 30, False)
SLOW = targets.Target("null", "null backend", "", 1 << 30, False, 20)


def job(**changes):
    line = {"job": 0, "rw": "randread", "bs": 4096, "qd": 1, "queues": 1, "wait": "poll",
            "transport": "pci", "loop": "closed", "rate": 0, "runtime_ns": 500_000_000, "ios": 1000,
            "reads": 1000, "writes": 0, "bytes": 4096000, "errors": 0, "mismatches": 0, "late": 0,
            "kicks": 250, "interrupts": 0,
            "latency_ns": {"min": 1, "mean": 3, "p50": 2000, "p90": 4, "p99": 5000, "p999": 6000,
                           "p9999": 7, "max": 8}, "histogram": [[1, 1000]]}
    return {**line, **changes}


class ShellContestant(contestants.Contestant):
    """A VMM that is a shell script; $1 is the guest's command line."""

    family = "Ringside"

    def __init__(self, script, name="Ringside"):
        super().__init__(name, "sh", "1.0")
        self._script = script

    def command(self, target, command_line, scratch):
        return ["sh", "-c", self._script, "sh", command_line]
