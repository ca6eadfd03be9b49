"""The QEMU that emulates the lab; also as a peer inside it, for guests to be compared under.

Under TCG, Debian 12's QEMU 7.2 now and then enters an SVM guest with the host's registers: one boot
of ten hangs or triple-faults. QEMU 10.0 did so once in some ninety. So with an older one the lab takes
the program from Debian's backports, beside the system's, whose libraries and firmware it uses.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .apt import private_apt
from .common import LAB_DIRECTORY, LabError, find_tool, locked, progress

PROGRAM = "qemu-system-x86_64"
SOUND_MAJOR_VERSION = 10
SUITE = "bookworm-backports"
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data")
DIRECTORY = LAB_DIRECTORY / "qemu"
FIRMWARE_DIRECTORIES = (DIRECTORY / "usr/share/qemu", Path("/usr/share/seabios"))

# Of a QEMU with KVM, for -kernel on q35 and microvm.
PEER_DIRECTORY = "/opt/qemu"
PEER_FIRMWARE = ("bios-256k.bin", "bios-microvm.bin", "kvmvapic.bin", "linuxboot_dma.bin",
                 "pvh.bin")


def qemu_command():
    """The command's first words."""
    system = find_tool(PROGRAM, "qemu-system-x86")
    if _major_version(system) >= SOUND_MAJOR_VERSION:
        return [system]
    try:
        _download()
    except LabError as error:
        print(f"lab: guests may hang in QEMU {_major_version(system)}, and no newer one can be had: "
              f"{error}", file=sys.stderr)
        return [system]
    command = [str(DIRECTORY / "usr/bin" / PROGRAM)]
    for directory in FIRMWARE_DIRECTORIES:
        command += ["-L", str(directory)]
    return command


def add_peer(files):
    """Puts QEMU into a FileSet; returns the text of the script that starts it there."""
    program, *options = qemu_command()
    files.add(program, f"{PEER_DIRECTORY}/{PROGRAM}")
    directories = [*options[1::2], "/usr/share/qemu", "/usr/share/seabios"]
    for name in PEER_FIRMWARE:
        places = [Path(directory) / name for directory in directories]
        found = next((path for path in places if path.exists()), None)
        if not found:
            raise LabError(f"QEMU's '{name}' not found: install the Debian package seabios")
        files.add(found, f"{PEER_DIRECTORY}/{name}")
    script = f'#!/bin/sh\nexec {PEER_DIRECTORY}/{PROGRAM} -L {PEER_DIRECTORY} "$@"\n'
    return {f"/usr/bin/{PROGRAM}": (script, 0o755)}


def _major_version(program):
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version (\d+)", text)
    return int(match.group(1)) if match else 0


def _download():
    with locked(LAB_DIRECTORY / "qemu.lock"):
        if DIRECTORY.exists():
            return
        progress(f"downloading QEMU from {SUITE} ...")
        with tempfile.TemporaryDirectory(prefix=".new-", dir=LAB_DIRECTORY) as temporary:
            unpacked = Path(temporary) / "qemu"
            with private_apt(SUITE) as apt:
                apt.unpack(PACKAGES, unpacked)
            os.rename(unpacked, DIRECTORY)
        progress("")
