"""tools/compare vsock: the same guest and streams under every VMM that has its vsock at a Unix socket:
round trips, streams out, connections.

A target is one kind of job with messages of one length.
"""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import guest_run
from .common import MeasureError
from .contestants import need

# What a target measures, and whether several connections at a time are jobs of it.
KINDS = {"echo": ("round trips: a program of the host sends, the guest sends back", True),
         "out": ("messages out on one stream, read and dropped by a program of the host", False),
         "flood": ("connections that a program of the host makes, and closes at once", True)}


@dataclass
class VsockTarget:
    kind: str
    message: int  # bytes
    path: str     # where the VMM is to listen
    helper: int = None  # As Target's: the client.
    is_null = False

    @property
    def name(self):
        return self.kind if self.kind == "flood" else f"{self.kind} {self.message}"

    @property
    def text(self):
        return KINDS[self.kind][0]

    @property
    def is_checked(self):
        """Where there is data to be checked."""
        return self.kind != "flood"

    def jobs(self, contestant, settings):
        return len(self._depths(contestant, settings))

    def load(self, _settings):
        return [f"vsock={self.kind}", f"message={self.message}"]

    def closed_loop(self, contestant, settings):
        return ["qd=" + ",".join(map(str, self._depths(contestant, settings)))]

    def verification(self, _verified_mib):
        return [*self.load({}), "verify=1", "qd=8"]

    def prepare(self):
        """Not every VMM takes its socket away, or replaces one that is there."""
        Path(self.path).unlink(missing_ok=True)

    def check(self, jobs):
        """What the guest says it has sent must have reached the host."""
        for job in jobs:
            if self.kind == "out" and job["sent_bytes"] != job["client_bytes"]:
                raise MeasureError(f"{job['sent_bytes']} bytes sent, {job['client_bytes']} reached the "
                                   "host")

    def _depths(self, contestant, settings):
        return contestant.depths(settings["depths"]) if KINDS[self.kind][1] else [1]


class VsockTargets:
    """The targets with their client on the host; as a context manager ends it."""

    def __init__(self, options):
        self._options = options
        self._directory = None
        self._client = None

    def __enter__(self):
        program = need(self._options.client, "--client")
        self._directory = tempfile.TemporaryDirectory(prefix="ringside-compare-vsock-")
        path = os.path.join(self._directory.name, "vm.sock")
        self._client = subprocess.Popen(guest_run.mortal([program, "--path", path]),
                                        stdin=subprocess.DEVNULL)
        messages = {"echo": self._options.echo_messages, "out": self._options.messages, "flood": (64,)}
        return [VsockTarget(kind, message, path, self._client.pid) for kind in self._options.kinds
                for message in messages[kind]]

    def __exit__(self, *_):
        ended = self._client.poll()
        self._client.kill()
        self._client.wait()
        self._directory.cleanup()
        if ended is not None:
            raise MeasureError(f"the client ended by itself, with status {ended}: no figure counts")


def settings_of(options):
    return {"vsock": True, "load": "one vsock", "kinds": options.kinds, "messages": options.messages,
            "echo_messages": options.echo_messages, "depths": options.depths}


def is_vsock(results):
    return "vsock" in results["settings"]
