"""Who is compared with a vsock: for each, how it is given the Unix socket."""

import json

from .common import MeasureError
from .contestants import find_peers, first_line, need
from .vmms import CloudHypervisorVmm, FirecrackerVmm, RingsideVmm

CID = 3
# What Ringside says of a vsock's queues: its names, and how they are called here.
_COUNTERS = {"requests": "packets", "errors": "errors", "kicks": "kicks", "interrupts": "interrupts"}
_KERNELS = ("has no vsock but the kernel's (vhost-vsock), whose programs speak AF_VSOCK and not to a Unix "
            "socket: it is not compared")


class Ringside(RingsideVmm):
    def __init__(self, program, way):
        super().__init__(f"Ringside {way.name}", program, first_line([program, "--version"]))
        self._way = way

    def command(self, target, command_line, scratch):
        return self.start(command_line, self._way, "--vsock", f"cid={CID},path={target.path}")

    def check(self, _target, errors):
        """Sums of its queues' counters, over the whole run."""
        try:
            vsock = json.loads(errors[errors.index("{"):])["vsocks"][0]
            found = {text: sum(queue[name] for queue in vsock["queues"])
                     for name, text in _COUNTERS.items()}
            return {**found, "connected": vsock["connected"], "refused": vsock["refused"],
                    "credit_waits": vsock["credit_waits"]}
        except (ValueError, LookupError) as error:
            raise MeasureError(f"its --stats json cannot be read ({error})") from error


class Firecracker(FirecrackerVmm):
    def __init__(self, program):
        super().__init__("Firecracker", program, first_line([program, "--version"]))

    def command(self, target, command_line, scratch):
        return self.start(command_line, scratch, vsock={"guest_cid": CID, "uds_path": target.path})


class CloudHypervisor(CloudHypervisorVmm):
    def __init__(self, program):
        super().__init__("Cloud Hypervisor", program, first_line([program, "--version"]))

    def command(self, target, command_line, scratch):
        return self.start(command_line, "--vsock", f"cid={CID},socket={target.path}")


# As contestants.PEERS.
PEERS = (
    ("firecracker", "its release from github.com/firecracker-microvm/firecracker",
     lambda program: [Firecracker(program)]),
    ("cloud-hypervisor", "its release from github.com/cloud-hypervisor/cloud-hypervisor",
     lambda program: [CloudHypervisor(program)]),
)


def find_contestants(options):
    """Returns (contestants that can be started, {name of a missing one: remedy})."""
    missing = {"QEMU": _KERNELS, "crosvm": _KERNELS}
    program = need(options.ringside, "--ringside")
    found = [Ringside(program, way) for way in options.ringside_poll]
    return found + find_peers(PEERS, options, missing), missing
