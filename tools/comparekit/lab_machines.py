"""Who is compared in the lab, and how tests/lab/compare.sh runs each."""

from dataclasses import dataclass

from labkit.common import CHECKOUT
from labkit.nvme import ADDRESS
from labkit.qemu import qemu_command

from . import schedule
from .contestants import Assigned, Contestant, Qemu, Ringside
from .iothread import POLLING, QEMU_POLL_MAX_NS, Default, Signalling, option_words

SCRIPTS = CHECKOUT / "tests" / "lab"
DATA = "/var/tmp/data.img"


@dataclass(frozen=True)
class Machine:
    """A contestant, and how compare.sh runs it."""

    name: str  # Of its directory in the results.
    contestant: Contestant
    driver: str  # Of the NVMe controller; "-" without one.
    option: str  # What gives the guest the disk that is measured: --disk or --vfio.
    disk: str    # That option's value.
    command: str

    def disk_for(self, guest):
        """The option's value for that guest: a disk has a queue for each vCPU by default."""
        one_queue_each = self.option == "--vfio" or guest.queues == guest.cpus
        return self.disk if one_queue_each else f"{self.disk},queues={guest.queues}"


class _Makers:
    """Ringside and QEMU, in every way that the options ask for."""

    def __init__(self, options):
        self._program = options.ringside
        self._ways = [Default(), POLLING["never"], *map(Signalling, options.ringside_signal)]
        self._engines = options.qemu_aio

    def ringside(self, engine, driver, option, disk):
        return [self._ringside(engine, way, driver, option, disk) for way in self._ways]

    def _ringside(self, engine, way, driver, option, disk):
        command = " ".join([self._program, "run", "--stats", "json", *option_words(way)])
        return Machine(f"ringside-{engine}-{way.name.replace(' ', '-')}",
                       Ringside(self._program, engine, way), driver, option, disk, command)

    def qemu(self, engine, driver, option, disk):
        return [self._qemu(engine, poll_ns, driver, option, disk)
                for poll_ns in (0, QEMU_POLL_MAX_NS)]

    def _qemu(self, engine, poll_ns, driver, option, disk):
        return Machine(f"qemu-{engine}-{poll_ns}", Qemu(qemu_command(), engine, poll_ns), driver,
                       option, disk, f"{SCRIPTS / 'qemu.sh'} run --iothread poll-max-ns={poll_ns}")

    def qemu_through_kernel(self, driver, path):
        return [machine for engine in self._engines
                for machine in self.qemu(engine, driver, "--disk", f"path={path},cache=none,aio={engine}")]

    def assigned(self):
        """The guest drives the device itself: how an I/O thread waits plays no part."""
        for machine in (self._ringside("vfio", POLLING["never"], "vfio-pci", "--vfio", ADDRESS),
                        self._qemu("vfio", 0, "vfio-pci", "--vfio", ADDRESS)):
            name = machine.name.partition("-")[0] + "-vfio"
            yield Machine(name, Assigned(machine.contestant), machine.driver, machine.option,
                          machine.disk, machine.command)


def machines_of(options):
    """Returns the Machines: the guest's disk is a file, or with --nvme a namespace in every way there
    is: driven by the VMM, by L1's kernel, or by the guest itself. Raises BadInput if --only and --skip
    leave none."""
    make = _Makers(options)
    if not options.nvme:
        found = [*make.ringside("auto", "-", "--disk", f"path={DATA},cache=none,aio=io_uring"),
                 *make.qemu_through_kernel("-", DATA)]
    else:
        own_driver = ("nvme", "vfio-pci", "--disk", f"nvme://{ADDRESS}/1")
        block_device = "/dev/nvme0n1"
        found = [*make.ringside(*own_driver), *make.qemu(*own_driver),
                 *make.ringside("uring_cmd", "nvme", "--disk", "/dev/ng0n1"),
                 *make.ringside("io_uring", "nvme", "--disk",
                                f"path={block_device},cache=none,aio=io_uring"),
                 *make.qemu_through_kernel("nvme", block_device), *make.assigned()]
    chosen = schedule.chosen([machine.contestant for machine in found], options, options.depths)
    return [machine for machine in found if machine.contestant in chosen]
