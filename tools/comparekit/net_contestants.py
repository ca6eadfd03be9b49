"""Who is compared with a network: for each, how it is given the tap."""

import json
import shutil

from . import network
from .common import MeasureError
from .contestants import find_peers, first_line, need, qemu_commands, qemu_identity
from .vmms import (QUEUE_SIZE, CloudHypervisorVmm, Contestant, CrosvmVmm, FirecrackerVmm, QemuVmm,
                   RingsideVmm)

# What Ringside says of a network's queues: its names, and how they are called here.
_COUNTERS = {"requests": "frames", "errors": "dropped", "kicks": "kicks", "interrupts": "interrupts"}


class Ringside(RingsideVmm):
    def __init__(self, program, way):
        super().__init__(f"Ringside {way.name}", program, first_line([program, "--version"]))
        self._way = way

    def command(self, target, command_line, scratch):
        return self.start(command_line, self._way,
                          "--net", f"tap={target.tap.name},mac={target.tap.guest_mac},queues=1")

    def check(self, _target, errors):
        """Sums of its queues' counters, over the whole run."""
        try:
            statistics = json.loads(errors[errors.index("{"):])
            queues = statistics["networks"][0]["queues"]
            found = {text: sum(queue[name] for queue in queues) for name, text in _COUNTERS.items()}
        except (ValueError, LookupError) as error:
            raise MeasureError(f"its --stats json cannot be read ({error})") from error
        frames = max(found["frames"], 1)
        return {**found, "kicks_per_frame": found["kicks"] / frames,
                "interrupts_per_frame": found["interrupts"] / frames}


class Qemu(QemuVmm):
    note = "serves networks in its main loop, as it does without a kernel that has vhost-net"

    def __init__(self, words):
        super().__init__(*qemu_identity(words))
        self._words = words

    def command(self, target, command_line, scratch):
        return self.start(
            self._words, command_line,
            "-netdev", f"tap,id=n,ifname={target.tap.name},script=no,downscript=no,vhost=off",
            "-device", f"virtio-net-pci,disable-legacy=on,romfile=,netdev=n,mac={target.tap.guest_mac},"
                       f"rx_queue_size={QUEUE_SIZE},tx_queue_size={QUEUE_SIZE}")


class Firecracker(FirecrackerVmm):
    def __init__(self, program):
        super().__init__("Firecracker", program, first_line([program, "--version"]))

    def command(self, target, command_line, scratch):
        interface = {"iface_id": "net", "host_dev_name": target.tap.name,
                     "guest_mac": target.tap.guest_mac}
        return self.start(command_line, scratch, **{"network-interfaces": [interface]})


class CloudHypervisor(CloudHypervisorVmm):
    def __init__(self, program):
        super().__init__("Cloud Hypervisor", program, first_line([program, "--version"]))

    def command(self, target, command_line, scratch):
        # The address is that of the tap, lest it be given another.
        return self.start(
            command_line, "--net", f"tap={target.tap.name},mac={target.tap.guest_mac},"
                                   f"ip={target.tap.host_address},mask={network.MASK},"
                                   f"num_queues=2,queue_size={QUEUE_SIZE}")


class Crosvm(CrosvmVmm):
    def __init__(self, program):
        super().__init__("crosvm", program, first_line([program, "version"]))

    def command(self, target, command_line, scratch):
        return self.start(command_line, "--net",
                          f"tap-name={target.tap.name},mac={target.tap.guest_mac}")


class Ceiling(Contestant):
    """A bare loop that writes and reads frames; `busy` threads only spin, as a polling guest's vCPU
    does."""

    family = "ceiling"

    def __init__(self, program, busy=0):
        super().__init__("ceiling, beside a busy thread" if busy else "ceiling", program, "")
        self._busy = busy

    def command(self, target, command_line, scratch):
        return [self.program, "--tap", target.tap.name, "--mac", target.tap.guest_mac,
                "--busy", str(self._busy), "--cmdline", command_line]


# As contestants.PEERS.
PEERS = (
    ("firecracker", "its release from github.com/firecracker-microvm/firecracker",
     lambda program: [Firecracker(program)]),
    ("cloud-hypervisor", "its release from github.com/cloud-hypervisor/cloud-hypervisor",
     lambda program: [CloudHypervisor(program)]),
    ("crosvm", "'cargo build --release' in a checkout of chromium.googlesource.com/crosvm/crosvm",
     lambda program: [Crosvm(program)]),
)


def find_contestants(options):
    """Returns (contestants that can be started, {name of a missing one: remedy})."""
    missing = {}
    program = need(options.ringside, "--ringside")
    found = [Ringside(program, way) for way in options.ringside_poll]
    found += [Qemu(words) for words in qemu_commands(options, missing)]
    found += find_peers(PEERS, options, missing)
    if shutil.which(options.ceiling):
        found += [Ceiling(options.ceiling), Ceiling(options.ceiling, busy=1)]
    else:
        missing["ceiling"] = (f"no program '{options.ceiling}': cmake --build --preset release "
                              "--target net_ceiling")
    return found, missing
