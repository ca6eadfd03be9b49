"""tools/compare net: the same guest and frames under every VMM, on one tap in a network namespace of
its own: round trips, frames out, frames in.

A target is one kind of job with frames of one length.
"""

import subprocess
from dataclasses import dataclass

from . import guest_run, network
from .common import MeasureError
from .contestants import need

# What a target measures, and how its jobs differ: by the guest's word, and the settings' name.
KINDS = {"echo": ("round trips, ICMP echo answered by the host's kernel", "qd", "depths"),
         "out": ("frames out, dropped by the host", None, None),
         "in": ("frames in, from a sender on the host", "rate", "in_rates")}


@dataclass
class NetTarget:
    kind: str
    frame: int  # bytes, Ethernet's header included
    tap: network.Tap
    helper: int = None  # As Target's: the sender.
    is_null = False

    @property
    def name(self):
        return f"{self.kind} {self.frame}"

    @property
    def text(self):
        return f"{self.frame}-byte frames, {KINDS[self.kind][0]}"

    @property
    def is_checked(self):
        """Bytes are checked where they come back."""
        return self.kind == "echo"

    def jobs(self, contestant, settings):
        return len(self._series(contestant, settings)) or 1

    def load(self, _settings):
        return [f"net={self.kind}", f"frame={self.frame}", f"net-own={self.tap.guest_address}",
                f"net-host={self.tap.host_address}"]

    def closed_loop(self, contestant, settings):
        series = self._series(contestant, settings)
        return [f"{KINDS[self.kind][1]}=" + ",".join(map(str, series))] if series else []

    def verification(self, _verified_mib):
        return [*self.load({}), "verify=1", "qd=8"]

    def prepare(self):
        self._received = network.received(self.tap)

    def check(self, jobs):
        """What the guest says it has sent must have reached the host."""
        if self.kind != "out":
            return
        sent = sum(job["sent"] for job in jobs)
        received = network.received(self.tap) - self._received
        if received < sent:
            raise MeasureError(f"{sent} frames sent, {received} reached the host")

    def _series(self, contestant, settings):
        name = KINDS[self.kind][2]
        if name == "depths":
            return contestant.depths(settings["depths"])
        return settings[name] if name else []


class NetTargets:
    """The targets with the network they need; as a context manager ends what serves them. The
    namespace is this process's from then on."""

    def __init__(self, options):
        self._options = options
        self._sender = None

    def __enter__(self):
        options = self._options
        sender = need(options.sender, "--sender") if "in" in options.kinds else None
        tap = network.Tap()
        network.enter()
        network.add(tap)
        if sender:
            self._sender = subprocess.Popen(guest_run.mortal([sender, "--tap", tap.name]),
                                            stdin=subprocess.DEVNULL)
        helper = self._sender and self._sender.pid
        return [NetTarget(kind, frame, tap, helper) for kind in options.kinds for frame in options.frames]

    def __exit__(self, *_):
        if self._sender is None:
            return
        ended = self._sender.poll()
        self._sender.kill()
        self._sender.wait()
        if ended is not None:
            raise MeasureError(f"the sender ended by itself, with status {ended}: no figure of frames "
                               "in counts")


def settings_of(options):
    return {"net": True, "load": "one pair of queues", "kinds": options.kinds,
            "frames": options.frames, "depths": options.depths, "in_rates": options.in_rates}


def is_net(results):
    return "net" in results["settings"]

