"""How each VMM starts the measuring guest and how its guest ends, whatever device is measured.

Tried: QEMU 7.2, 10.0 and 11.1, Firecracker 1.16 and 1.17, Cloud Hypervisor 53 and 54, crosvm of 2026.
"""

import json
from pathlib import Path

from .common import RELEASE_DIRECTORY
from .iothread import option_words

GUEST = RELEASE_DIRECTORY / "tests" / "guest" / "guest.elf"
MEMORY_MIB = 512
QUEUE_SIZE = 256


class Contestant:
    """One way to serve the guest's device. `name` is what --only and --skip know it by."""

    checked = True      # Its data is verified before it is measured.

    family = ""         # Contestants of one family are of one colour in the plots.
    note = ""           # What a reader of the table has to know.
    end = "poweroff"    # The guest's word that makes it exit by itself.
    exit_status = 0     # With which it does; None: any.
    max_depth = QUEUE_SIZE

    def __init__(self, name, program, version):
        self.name = name
        self.program = str(program)
        self.version = version

    def serves(self, _target):
        """Whether it can be measured on that target at all."""
        return True

    def depths(self, depths):
        """Those of `depths` that it has room for."""
        return [depth for depth in depths if depth <= self.max_depth]

    def command(self, target, command_line, scratch):
        """The words to start it; `scratch` is a directory for what it has to be given in files."""
        raise NotImplementedError

    def check(self, _target, _errors):
        """Returns what it says of itself at its end; raises MeasureError if that is wrong."""
        return {}


class RingsideVmm(Contestant):
    family = "Ringside"

    def start(self, command_line, way, *devices):
        """The words to start it with those devices; `way` is how its I/O thread waits or signals, of
        iothread.py."""
        return [self.program, "run", "--kernel", str(GUEST), "--memory", f"{MEMORY_MIB}M", *devices,
                *option_words(way), "--stats", "json", "--cmdline", command_line]


class QemuVmm(Contestant):
    """QEMU's microvm; `words` start that QEMU."""

    family = "QEMU"
    end = "qemu"
    exit_status = 33  # (0x10 << 1) | 1, from the guest's write to isa-debug-exit.

    @staticmethod
    def start(words, command_line, *devices):
        return [*words, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                "-serial", "stdio", "-M", "microvm,pcie=on,pit=off,rtc=off", "-enable-kvm",
                "-cpu", "host,-arch-capabilities", "-m", f"{MEMORY_MIB}M",
                "-name", "compare,debug-threads=on", *devices,
                "-device", "isa-debug-exit,iobase=0xf4,iosize=4",
                "-kernel", str(GUEST), "-append", command_line]


class FirecrackerVmm(Contestant):
    """With its defaults: its devices are on virtio-mmio."""

    family = "Firecracker"
    end = "reset"

    def start(self, command_line, scratch, **devices):
        config = {"boot-source": {"kernel_image_path": str(GUEST), "boot_args": command_line},
                  "machine-config": {"vcpu_count": 1, "mem_size_mib": MEMORY_MIB}, **devices}
        config.setdefault("drives", [])
        path = Path(scratch) / "firecracker.json"
        path.write_text(json.dumps(config))
        # Its log would go into the guest's lines.
        return [self.program, "--no-api", "--log-path", "/dev/stderr", "--config-file", str(path)]


class CloudHypervisorVmm(Contestant):
    family = "Cloud Hypervisor"

    def start(self, command_line, *devices):
        # It gives BARs the top of the address space, of which the guest has mapped 8 GiB.
        return [self.program, "--kernel", str(GUEST), "--cmdline", command_line,
                "--cpus", "boot=1,max_phys_bits=33", "--memory", f"size={MEMORY_MIB}M", *devices,
                "--serial", "tty", "--console", "off"]


class CrosvmVmm(Contestant):
    family = "crosvm"
    end = "reset"
    exit_status = None

    def start(self, command_line, *devices):
        return [self.program, "run", "--disable-sandbox", "--cpus", "1", "--mem", str(MEMORY_MIB),
                *devices, "--serial", "type=stdout,hardware=serial,num=1",
                "--params", command_line, str(GUEST)]
