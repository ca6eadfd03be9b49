"""Who is compared with a disk: for each, how it is given one, what it says of itself.

A new peer is one more class here and in vmms.py, and one more line in PEERS.
"""

import ctypes
import errno
import json
import re
import shutil
import subprocess

from .common import BadInput, MeasureError
from .iothread import POLLING, Signalling
from .vmms import (GUEST, QUEUE_SIZE, CloudHypervisorVmm, Contestant, CrosvmVmm, FirecrackerVmm, QemuVmm,
                   RingsideVmm)

QEMU = "qemu-system-x86_64"
# A request takes three descriptors in the ring itself where there are no indirect ones.
MAX_DEPTH_WITHOUT_INDIRECT = QUEUE_SIZE // 3

_SYS_IO_URING_SETUP = 425


class Ringside(RingsideVmm):
    """`way` is how its I/O thread waits or signals, of iothread.py."""

    def __init__(self, program, engine, way):
        self.base_name = "Ringside" if engine == "auto" else f"Ringside {engine}"
        super().__init__(f"{self.base_name} {way.name}", program,
                         first_line([program, "--version"]))
        self._engine, self._way = engine, way

    def serves(self, target):
        if target.is_null:
            return self._engine == "auto"
        return target.direct or self._engine != "native"

    def command(self, target, command_line, scratch):
        disk = f"type=null,size={target.size >> 20}M"
        if target.latency_us:
            disk += f",latency={target.latency_us}us"
        if not target.is_null:
            cache = "none" if target.direct else "writeback"
            disk = f"path={target.path.replace(',', ',,')},cache={cache},aio={self._engine}"
        return self.start(command_line, self._way, "--disk", disk + ",queues=1")

    def check(self, target, errors):
        try:
            statistics = json.loads(errors[errors.index("{"):])
            disk = statistics["disks"][0]
            queues = disk["queues"]
        except (ValueError, LookupError) as error:
            raise MeasureError(f"its --stats json cannot be read ({error})") from error
        expected = "io_uring" if self._engine == "auto" else self._engine
        if not target.is_null and disk["aio"] != expected:
            raise MeasureError(f"the engine fell back to {disk['aio']}: see 'ringside doctor', or "
                               f"measure that one with --ringside-aio {disk['aio']}")
        of_disk = {name: sum(queue[name] for queue in queues)
                   for name in ("requests", "errors", "kicks", "interrupts")}
        requests = max(of_disk["requests"], 1)

        def of_threads(name):
            return sum(thread[name] for thread in statistics["io_threads"]) / requests

        exits = sum(sum(vcpu["exits"].values()) for vcpu in statistics["vcpus"])
        return {"aio": disk["aio"], "requests": of_disk["requests"],
                "errors": of_disk["errors"],
                "kicks_per_request": of_disk["kicks"] / requests,
                "interrupts_per_request": of_disk["interrupts"] / requests,
                "exits_per_request": exits / requests,
                "sleeps_per_request": of_threads("sleeps"),
                "wasted_spin_ns_per_request": of_threads("spin_wasted_ns"),
                "io_uring_enters_per_request": of_threads("io_uring_enters")}


class Qemu(QemuVmm):
    """With an IOThread that polls for `poll_max_ns` at most."""

    def __init__(self, words, aio, poll_max_ns):
        name, program, version = qemu_identity(words)
        polling = f"poll {poll_max_ns / 1000:.3g}us" if poll_max_ns else "no poll"
        self.base_name = f"{name} {aio}"
        super().__init__(f"{self.base_name} {polling}", program, version)
        self._words, self._aio, self._poll_max_ns = words, aio, poll_max_ns

    def serves(self, target):
        if target.is_null:
            return self._aio == "io_uring"  # The engine plays no part in null-co: one is enough.
        return target.direct or self._aio != "native"

    def command(self, target, command_line, scratch):
        if target.is_null:
            backend = {"driver": "null-co", "size": target.size, "read-zeroes": False,
                       "latency-ns": target.latency_us * 1000}
        else:
            backend = {"driver": "file", "filename": target.path, "aio": self._aio,
                       "cache": {"direct": target.direct}}
        return self.start(
            self._words, command_line, "-object", f"iothread,id=t,poll-max-ns={self._poll_max_ns}",
            "-blockdev", json.dumps({"node-name": "d", **backend}),
            "-device", "virtio-blk-pci,disable-legacy=on,drive=d,iothread=t,num-queues=1,"
                       f"queue-size={QUEUE_SIZE}")


class Assigned(Contestant):
    """A guest that drives the device itself; `of` is who runs it, made with the engine "vfio"."""

    def __init__(self, of):
        self.family = of.family
        super().__init__(of.base_name, of.program, of.version)


class Firecracker(FirecrackerVmm):
    max_depth = MAX_DEPTH_WITHOUT_INDIRECT
    note = ("has no O_DIRECT: it reads through the host's page cache, which holds nothing of the "
            f"file when a run starts. Its ring has room for {max_depth} requests")

    def __init__(self, program, engine):
        super().__init__(f"Firecracker {engine}", program, first_line([program, "--version"]))
        self._engine = engine

    def serves(self, target):
        return not target.is_null

    def command(self, target, command_line, scratch):
        drive = {"drive_id": "disk", "path_on_host": target.path, "is_root_device": False,
                 "is_read_only": False, "io_engine": self._engine.capitalize()}
        return self.start(command_line, scratch, drives=[drive])


class CloudHypervisor(CloudHypervisorVmm):
    def __init__(self, program, engine):
        super().__init__(f"Cloud Hypervisor {engine}", program, first_line([program, "--version"]))
        # It takes the first engine that works, of io_uring, Linux AIO and synchronous calls.
        self._extra = {"io_uring": "", "native": ",_disable_io_uring=on",
                       "sync": ",_disable_io_uring=on,_disable_aio=on"}[engine]
        # New ones guess no format, and keep the guest from sector 0 if they have to.
        if "image_type" in help_text(program):
            self._extra += ",image_type=raw"

    def serves(self, target):
        return not target.is_null

    def command(self, target, command_line, scratch):
        direct = "on" if target.direct else "off"
        return self.start(command_line, "--disk", f"path={target.path},direct={direct},num_queues=1,"
                                                  f"queue_size={QUEUE_SIZE}{self._extra}")


class Crosvm(CrosvmVmm):
    max_depth = MAX_DEPTH_WITHOUT_INDIRECT
    note = f"has room for {max_depth} requests in its ring"

    def __init__(self, program):
        super().__init__("crosvm", program, first_line([program, "version"]))

    def serves(self, target):
        return not target.is_null

    def command(self, target, command_line, scratch):
        direct = "true" if target.direct else "false"
        return self.start(command_line, "--block", f"path={target.path},direct={direct}")


class Ceiling(Contestant):
    """The same guest on the barest loop there can be: no VMM, no checks."""

    family = "ceiling"

    def __init__(self, program, engine):
        super().__init__(f"ceiling {engine}", program, "this checkout")
        self._engine = engine

    def serves(self, target):
        if target.is_null:
            return self._engine == "null" and not target.latency_us
        return self._engine != "null"

    def command(self, target, command_line, scratch):
        disk = ["--null", f"{target.size >> 20}M"] if target.is_null else ["--file", target.path]
        return [self.program, "--kernel", str(GUEST), *disk, "--engine", self._engine,
                "--cmdline", command_line]


# Of a peer: its option and program, how to get it, and the contestants it stands for.
PEERS = (
    ("firecracker", "its release from github.com/firecracker-microvm/firecracker",
     lambda program: [Firecracker(program, engine) for engine in ("sync", "async")]),
    ("cloud-hypervisor", "its release from github.com/cloud-hypervisor/cloud-hypervisor",
     lambda program: [CloudHypervisor(program, engine)
                      for engine in ("io_uring", "native", "sync")]),
    ("crosvm", "'cargo build --release' in a checkout of chromium.googlesource.com/crosvm/crosvm",
     lambda program: [Crosvm(program)]),
)


def find_contestants(options):
    """Returns (contestants that can be started, {name of a missing one: remedy})."""
    missing = {}
    ways = [*(POLLING[name] for name in options.ringside_poll), *map(Signalling, options.ringside_signal)]
    found = [Ringside(need(options.ringside, "--ringside"), engine, way)
             for engine in options.ringside_aio for way in ways]
    for words in qemu_commands(options, missing):
        found += [Qemu(words, aio, poll) for aio in ("io_uring", "native")
                  for poll in options.qemu_poll]
    found += find_peers(PEERS, options, missing)
    if shutil.which(options.ceiling):
        found += [Ceiling(options.ceiling, engine) for engine in ("pread", "io_uring", "null")]
    else:
        missing["ceiling"] = (f"no program '{options.ceiling}': cmake --build --preset release "
                              "--target ceiling")
    return startable(found, missing), missing


def find_peers(peers, options, missing):
    """Those of `peers`, which is like PEERS, whose program is given or in PATH."""
    found = []
    for name, remedy, make in peers:
        given = getattr(options, name.replace("-", "_"))
        program = need(given, f"--{name}") if given else shutil.which(name)
        if program:
            found += make(program)
        else:
            missing[name] = f"get {remedy}, and put it into PATH or give --{name} PATH"
    return found


def startable(found, missing):
    """Returns those of `found` that this host lets start, and tells `missing` of the others."""
    names = [contestant.name for contestant in found]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"there are two of '{name}': give --qemu programs of different versions")
    if io_uring_works():
        return found
    remedy = ("this host forbids io_uring: try 'sysctl kernel.io_uring_disabled=0', or lift "
              "the container's seccomp filter")
    refused = [contestant for contestant in found if "io_uring" in contestant.name]
    missing.update({contestant.name: remedy for contestant in refused})
    return [contestant for contestant in found if contestant not in refused]


def entry(contestant):
    """What results.json says of a Contestant, or of what the host does in its place."""
    return {name: getattr(contestant, name)
            for name in ("name", "family", "version", "program", "note")}


def need(path, option):
    found = shutil.which(path)
    if not found:
        raise BadInput(f"{option} '{path}' is no program: give the path of one")
    return found


def qemu_commands(options, missing):
    """Returns the words that start each QEMU of --qemu, or the one in PATH."""
    if not options.qemu and not shutil.which(QEMU):
        missing["QEMU"] = "install the Debian package qemu-system-x86, or give --qemu PATH"
    return [qemu_words(program) for program in options.qemu or filter(shutil.which, [QEMU])]


def qemu_identity(words):
    """Returns (its name, its program, its version) of the QEMU that these words start."""
    version = first_line([*words, "--version"])
    number = re.search(r"version (\d+\.\d+)", version)
    program = next((word for word in words if word.endswith(QEMU)), words[0])
    return f"QEMU {number.group(1) if number else '?'}", program, version


def qemu_words(program):
    """'lab' is the QEMU that tools/lab unpacked, with its firmware."""
    if program == "lab":
        from labkit.qemu import qemu_command  # Here: it may download that QEMU.
        return qemu_command()
    return [need(program, "--qemu")]


def first_line(command):
    """What a program says of its version."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"'{command[0]}' cannot be run: {error}") from error
    return (result.stdout or result.stderr).strip().split("\n")[0]


def help_text(program):
    result = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
    return result.stdout + result.stderr


def io_uring_works():
    """Asks for a ring with parameters that no kernel takes: EFAULT says that rings can be had."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(_SYS_IO_URING_SETUP, 1, None)
    return ctypes.get_errno() == errno.EFAULT
