"""One boot of the measuring guest under one contestant: its jobs, and what they cost this machine.

The guest prints a JSON line a job on its serial port, which is the VMM's standard output. The VMM's
processor time is read when a job line begins and when it ends, so that printing counts for no job.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from . import cpu, kvm_exits
from .common import MeasureError

# Beyond the jobs' own time: start, set-up of the disk, printing where each character is an exit.
_PATIENCE_S = 20
_END_PATIENCE_S = 5
_OUTPUT_LINES_SHOWN = 12


class SerialLines:
    """Splits what the guest prints into lines, with samples at the beginning and end of each."""

    def __init__(self, sample):
        self._sample = sample
        self._line = b""
        self._began = None

    def feed(self, data):
        """Yields (text, sample at its beginning, sample at its end) of each complete line."""
        for piece in data.splitlines(keepends=True):
            if not self._line:
                self._began = self._sample()
            self._line += piece
            if self._line.endswith(b"\n"):
                text = self._line.decode(errors="replace").strip()
                self._line = b""
                yield text, self._began, self._sample()


class GuestOutput:
    """Collects the jobs of one boot from its lines."""

    def __init__(self):
        self.jobs = []
        self.lines = []
        self.ending = False  # The guest has said that it ends.
        self._boundary = None

    def add(self, text, began, ended):
        self.lines.append(text)
        if text.startswith("guest: FAIL"):
            raise MeasureError(text)
        if text.startswith("guest: end="):
            self.ending = True
        if text.startswith("{"):
            job = parse_job(text)
            if self._boundary and began:
                _add_cpu(job, began - self._boundary)
            self.jobs.append(job)
        self._boundary = ended


def parse_job(text):
    """Returns the job of a line as a dictionary; raises MeasureError if it measured nothing."""
    try:
        job = json.loads(text)
    except ValueError as error:
        raise MeasureError(f"the guest printed no JSON: {text[:200]}") from error
    if "error" in job:
        raise MeasureError(f"job {job.get('job')}: {job['error']}")
    name = f"job at depth {job['qd']}"
    if job["errors"]:
        raise MeasureError(f"{name}: {job['errors']} I/O errors")
    if job["mismatches"]:
        raise MeasureError(f"{name}: {job['mismatches']} blocks that were not what was written")
    if not job["ios"]:
        raise MeasureError(f"{name}: no I/O was done")
    if job.get("lost", 0) > job.get("full", 0):
        raise MeasureError(f"{name}: {job['lost']} frames lost, {job['full']} of them for want of room "
                           "in the tap")
    job["iops"] = job["ios"] * 1e9 / job["runtime_ns"]
    all_ios = job["ios"]
    if "depth1" in job:
        if not job["depth1"]["ios"]:
            raise MeasureError(f"{name}: the depth-1 job beside it did no I/O")
        job["depth1"]["iops"] = job["depth1"]["ios"] * 1e9 / job["runtime_ns"]
        all_ios += job["depth1"]["ios"]
    for name in ("kicks", "interrupts"):
        job[f"{name}_per_io"] = job[name] / all_ios
    return job


def _add_cpu(job, used):
    """The interval holds the warm-up too, so the rate of use is what counts."""
    ios = job["ios"] + job.get("depth1", {"ios": 0})["ios"]
    ns_per_io = job["runtime_ns"] / max(used.time_ns, 1) / ios
    job["cpu_ns_per_io"] = used.total_ns * ns_per_io
    job["host_cpu_ns_per_io"] = (used.total_ns - used.vcpu_ns) * ns_per_io
    if used.exits is not None:
        job["exits_per_io"] = used.exits * ns_per_io
    job["host_cpu_share"] = (used.total_ns - used.vcpu_ns) / max(used.time_ns, 1)


def run(contestant, target, words, seconds, apart=None):
    """Boots the guest with these words on its command line; `seconds` is what its jobs take; `apart`
    the two processors of cpu.keep_apart.

    Returns (jobs, what the contestant says of itself).
    """
    command_line = " ".join([*words, f"end={contestant.end}"])
    with tempfile.TemporaryDirectory(prefix="ringside-compare-") as scratch, \
            tempfile.TemporaryFile() as errors:
        command = contestant.command(target, command_line, scratch)
        if not shutil.which(command[0]):
            raise MeasureError(f"cannot start '{command[0]}': it is no program")
        process = subprocess.Popen(mortal(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=errors, cwd=scratch, start_new_session=True)
        output = GuestOutput()
        exits = kvm_exits.Counter()
        try:
            with process.stdout:
                _follow(process, output, exits, time.monotonic() + 2 * seconds + _PATIENCE_S, apart)
            status = _wait_for_end(process)
            if contestant.exit_status not in (None, status):
                raise MeasureError(f"exit status {status} instead of {contestant.exit_status}")
            if not output.jobs:
                raise MeasureError("the guest ran no job")
            return output.jobs, contestant.check(target, _read(errors))
        except MeasureError as error:
            raise MeasureError(f"{error}{_last_output(output, errors)}") from error
        finally:
            _kill(process)
            exits.close()


def _follow(process, output, exits, deadline, apart):
    """Reads to the end, which comes when the VMM ends: one that cannot write may do anything."""
    lines = SerialLines(lambda: cpu.sample(process.pid, exits))
    while True:
        patience = max(deadline - time.monotonic(), 0)
        readable, _, _ = select.select([process.stdout], [], [], patience)
        if not readable and output.ending:
            raise MeasureError("still runs though its guest has ended; killed")
        if not readable:
            raise MeasureError(f"hangs: {len(output.jobs)} jobs done, then nothing more; killed")
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            return
        if apart and not output.lines:
            cpu.keep_apart(process.pid, *apart)  # The guest runs, so all threads are there.
        for line in lines.feed(data):
            output.add(*line)
            if output.ending:
                deadline = min(deadline, time.monotonic() + _END_PATIENCE_S)


def _wait_for_end(process):
    try:
        return process.wait(_END_PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise MeasureError("still runs with its output closed; killed") from None


def _kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _read(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def _last_output(output, errors):
    lines = [line[:200] for line in output.lines + _read(errors).splitlines() if line]
    return "".join(f"\n    | {line}" for line in lines[-_OUTPUT_LINES_SHOWN:])


def mortal(command):
    """The words that start a command which does not outlive this process, however that ends.

    A preexec_fn would do it too, but Python calls hooks around the fork then, and an exception of a
    signal's handler that falls into one is lost.
    """
    return ["setpriv", "--pdeathsig", "KILL", *command]
