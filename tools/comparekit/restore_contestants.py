"""Who restores: in one process, which tells the time itself, and by a program's start, which is timed here
from before it is spawned to the first byte on its standard output."""

import json
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

from .common import MeasureError
from .contestants import find_peers, first_line, need
from .guest_run import mortal
from .vmms import GUEST, Contestant

BEAT = b"."  # What the guest says over and over (tests/guest/main.cc).
COMMAND_LINE = "beat=20"
_UP = b"guest: beats\n" + BEAT
_PATIENCE_S = 30
_SAVE_PATIENCE_S = 600  # It writes all of the memory, whether the guest has touched it or not.
_CONNECT_STEP_S = 0.00005
_NOT_TRIED = "this command does not know how they save and restore; Firecracker's way is nearest to ours"


class Program:
    """restore_times, which saves and restores in one process; as a context manager ends it."""

    def __init__(self, path, scratch):
        self._errors_path = Path(scratch) / "restore_times.errors"
        with open(self._errors_path, "wb") as errors:
            self._process = subprocess.Popen(mortal([path, "--kernel", str(GUEST)]), stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=errors, text=True)

    @property
    def pid(self):
        return self._process.pid

    def ask(self, *words):
        """Returns its answer to a line of `words`."""
        try:
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as error:
            raise MeasureError(f"restore_times has ended: {self._errors_path.read_text()}") from error
        if "error" in answer:
            raise MeasureError(answer["error"])
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()


class Inside(Contestant):
    """In the process of restore_times; `way` is its word for it."""

    snapshot = "ringside"

    def __init__(self, name, family, way, program):
        super().__init__(name, program, "")
        self.family, self._way = family, way

    def make(self, place, memory_mib, program):
        program.ask("make", place, memory_mib)

    def restore(self, place, program):
        """Returns ns."""
        return program.ask(self._way, place)["ns"]


class Command(Contestant):
    family = "Ringside"
    snapshot = "ringside"

    def __init__(self, program):
        super().__init__("Ringside command", program, first_line([program, "--version"]))

    def make(self, place, memory_mib, program):
        program.ask("make", place, memory_mib)

    def restore(self, place, _program):
        with Spawned([self.program, "run", "--restore", str(place)]) as spawned:
            return spawned.await_beat()


class Firecracker(Contestant):
    """By its control socket, as it has no other way: asked as soon as that is there."""

    family = "Firecracker"
    snapshot = "firecracker"

    def __init__(self, program):
        super().__init__("Firecracker", program, first_line([program, "--version"]))

    def make(self, place, memory_mib, _program):
        place.mkdir()
        socket_path = _socket_beside(place)
        config = {"boot-source": {"kernel_image_path": str(GUEST), "boot_args": COMMAND_LINE},
                  "machine-config": {"vcpu_count": 1, "mem_size_mib": memory_mib}, "drives": []}
        path = place.with_suffix(".json")
        path.write_text(json.dumps(config))
        with Spawned(self._command(socket_path, "--config-file", str(path))) as spawned:
            spawned.await_text(_UP)
            for method, what, body in (
                    ("PATCH", "/vm", {"state": "Paused"}),
                    ("PUT", "/snapshot/create", {"snapshot_type": "Full", "snapshot_path": str(place / "state"),
                                                 "mem_file_path": str(place / "memory")})):
                with _connect(socket_path) as api:
                    api.settimeout(_SAVE_PATIENCE_S)
                    _send(api, method, what, body)
                    _check_answer(api)

    def restore(self, place, _program):
        socket_path = _socket_beside(place)
        backend = {"backend_type": "File", "backend_path": str(place / "memory")}
        body = {"snapshot_path": str(place / "state"), "mem_backend": backend, "resume_vm": True}
        with Spawned(self._command(socket_path)) as spawned, _connect(socket_path) as api:
            _send(api, "PUT", "/snapshot/load", body)
            ns = spawned.await_beat()
            _check_answer(api)
            return ns

    def _command(self, socket_path, *words):
        socket_path.unlink(missing_ok=True)
        # Its log would go before the guest's byte.
        return [self.program, "--api-sock", str(socket_path), "--log-path", "/dev/stderr", *words]


class Spawned:
    """A program whose standard output is read; as a context manager kills it.

    posix_spawn costs some 0.3 ms less than subprocess.Popen with all that it does in Python.
    """

    def __init__(self, command):
        self._output, theirs = os.pipe2(os.O_CLOEXEC)
        self._errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                   (os.POSIX_SPAWN_DUP2, theirs, 1), (os.POSIX_SPAWN_DUP2, self._errors, 2)]
        self._begin = time.monotonic_ns()
        self._pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        os.close(theirs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._output)
        os.close(self._errors)

    def await_beat(self):
        """Returns how many ns it is from the start to the guest's first byte."""
        said = self._read(1)
        ns = time.monotonic_ns() - self._begin
        if said != BEAT:
            raise MeasureError(f"says {said} and not what its guest does")
        return ns

    def await_text(self, text):
        said = b""
        while text not in said:
            said += self._read(4096)

    def _read(self, size):
        readable, _, _ = select.select([self._output], [], [], _PATIENCE_S)
        said = os.read(self._output, size) if readable else b""
        if not said:
            errors = os.pread(self._errors, 4096, 0).decode(errors="replace").strip()
            raise MeasureError(f"its guest says nothing; it says: {errors[-300:]}")
        return said


def _socket_beside(place):
    return place.with_suffix(".sock")


def _connect(path):
    """As soon as somebody listens."""
    api = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            api.connect(str(path))
            api.settimeout(_PATIENCE_S)
            return api
        except OSError as error:
            if time.monotonic() > deadline:
                api.close()
                raise MeasureError(f"nobody listens at {path}: {error}") from error
            time.sleep(_CONNECT_STEP_S)


def _send(api, method, path, body):
    text = json.dumps(body)
    api.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(text)}\r\n\r\n{text}".encode())


def _check_answer(api):
    try:
        answer = api.recv(65536).decode(errors="replace")
    except OSError as error:
        raise MeasureError(f"its socket does not answer: {error}") from error
    if " 204 " not in answer.split("\n", 1)[0]:
        raise MeasureError(f"it answers: {answer[:300]}")


# As contestants.PEERS.
PEERS = (("firecracker", "its release from github.com/firecracker-microvm/firecracker",
          lambda program: [Firecracker(program)]),)


def find_contestants(options):
    """Returns (contestants that can be started, {name of a missing one: remedy})."""
    missing = {"QEMU, Cloud Hypervisor, crosvm": _NOT_TRIED}
    inside = need(options.program, "--program")
    found = [Inside("bare", "ceiling", "bare", inside), Inside("Ringside library", "Ringside", "library", inside),
             Inside("Ringside fork", "Ringside", "fork", inside), Command(need(options.ringside, "--ringside"))]
    return found + find_peers(PEERS, options, missing), missing
