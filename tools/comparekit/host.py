"""What the host does without any guest: fio on the same file, at the same depths.

Its processor time is that of fio's job threads. io_uring's worker threads, which the kernel uses
for files it cannot serve otherwise (tmpfs), are not in it.
"""

import json
import subprocess
import tempfile

from .common import MeasureError
from .contestants import first_line

FIO = "fio"
_PATIENCE_S = 30
_PERCENTILES = {"p50": "50.000000", "p90": "90.000000", "p99": "99.000000", "p999": "99.900000",
                "p9999": "99.990000"}


class HostEngine:
    """One engine of fio, at every depth in one start of it."""

    family = "host"
    note = ""

    def __init__(self, engine):
        self.name = f"host {engine}"
        self.engine = engine
        self.program = FIO
        self.version = first_line([FIO, "--version"])

    def serves(self, target):
        # Without O_DIRECT Linux AIO is synchronous: no engine for the depth.
        return not target.is_null and (target.direct or self.engine != "libaio")

    def depths(self, depths):
        """psync has one request in flight, whatever it is asked for."""
        return [depth for depth in depths if depth == 1 or self.engine != "psync"]

    def command(self, target, settings):
        words = [FIO, "--output-format=json", f"--filename={target.path}",
                 f"--ioengine={self.engine}", f"--direct={int(target.direct)}",
                 f"--rw={settings['rw']}", f"--bs={settings['bs']}",
                 f"--rwmixread={settings['rwmix']}", f"--size={target.size}", "--time_based",
                 f"--runtime={settings['runtime_ms']}ms", f"--ramp_time={settings['warmup_ms']}ms",
                 "--norandommap", "--randrepeat=0", "--stonewall", "--thread",
                 "--lat_percentiles=1", "--percentile_list=50:90:99:99.9:99.99",
                 "--unified_rw_reporting=mixed"]
        for depth in self.depths(settings["depths"]):
            words += [f"--name=qd{depth}", f"--iodepth={depth}"]
        return words

    def run(self, target, settings, seconds):
        """Returns the jobs as a guest's boot would."""
        with tempfile.TemporaryDirectory(prefix="ringside-compare-") as scratch:
            try:
                result = subprocess.run(self.command(target, settings), capture_output=True,
                                        text=True, check=False, cwd=scratch,
                                        timeout=2 * seconds + _PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise MeasureError("fio hangs; killed") from None
        if result.returncode != 0:
            raise MeasureError(f"fio: exit status {result.returncode}: "
                               f"{result.stderr.strip()[-300:]}")
        return parse_fio(result.stdout)


def parse_fio(text):
    try:
        return [_parse_job(job) for job in json.loads(text[text.index("{"):])["jobs"]]
    except (ValueError, LookupError) as error:
        raise MeasureError(f"fio's JSON cannot be read: {error!r}") from error


def _parse_job(job):
    mixed = job["mixed"]
    if job["error"]:
        raise MeasureError(f"fio {job['jobname']}: error {job['error']}")
    if not mixed["total_ios"]:
        raise MeasureError(f"fio {job['jobname']}: no I/O was done")
    latency = mixed["lat_ns"]
    cpu_ns = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1e6
    percentiles = {name: latency["percentile"][key] for name, key in _PERCENTILES.items()}
    return {"qd": int(job["jobname"].rpartition("qd")[2]), "rate": 0, "loop": "closed",
            "ios": mixed["total_ios"], "runtime_ns": mixed["runtime"] * 1_000_000,
            "iops": mixed["iops"], "cpu_ns_per_io": cpu_ns / mixed["total_ios"],
            "latency_ns": {"min": latency["min"], "mean": round(latency["mean"]),
                           "max": latency["max"], **percentiles}}
