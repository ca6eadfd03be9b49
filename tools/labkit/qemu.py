"""The QEMU that emulates the lab; also as a peer inside it, for guests to be compared under.

Two faults of TCG end guests that have done nothing wrong, and one of them is mended by version: before
10.2 a processor that begins to run an SVM guest changes its pending interrupts without a lock, so that
a timer's interrupt is lost for ever. So with an older QEMU the lab takes that of a newer Debian, with
its libraries and firmware, and leaves the system's alone. For the other see machine.py.
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
SOUND_VERSION = (10, 2)
SUITES = ("trixie-backports", "trixie")
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")
DIRECTORY = LAB_DIRECTORY / "qemu-11"
LOADER = DIRECTORY / "usr/lib64/ld-linux-x86-64.so.2"
LIBRARIES = DIRECTORY / "usr/lib/x86_64-linux-gnu"
FIRMWARE_DIRECTORIES = (DIRECTORY / "usr/share/qemu", DIRECTORY / "usr/share/seabios")

# Of a QEMU with KVM, for -kernel on q35 and microvm.
PEER_DIRECTORY = "/opt/qemu"
PEER_FIRMWARE = ("bios-256k.bin", "bios-microvm.bin", "kvmvapic.bin", "linuxboot_dma.bin",
                 "pvh.bin")


def qemu_program():
    """Its path; one below DIRECTORY is to be started by qemu_command()."""
    system = find_tool(PROGRAM, "qemu-system-x86")
    if _version(system) >= SOUND_VERSION:
        return system
    try:
        _download()
    except LabError as error:
        print(f"lab: guests may hang in this QEMU, '{system}', and no newer one can be had: {error}",
              file=sys.stderr)
        return system
    return str(DIRECTORY / "usr/bin" / PROGRAM)


def qemu_command():
    """The command's first words."""
    program = qemu_program()
    if not _is_ours(program):
        return [program]
    command = [str(LOADER), "--library-path", str(LIBRARIES), program]
    for directory in FIRMWARE_DIRECTORIES:
        command += ["-L", str(directory)]
    return command


def add_peer(files):
    """Puts QEMU into a FileSet; returns the text of the script that starts it there."""
    program = qemu_program()
    start = f"{PEER_DIRECTORY}/{PROGRAM}"
    if _is_ours(program):
        listing = subprocess.run([LOADER, "--library-path", LIBRARIES, "--list", program],
                                 capture_output=True, text=True, check=True).stdout
        for path in [program, LOADER, *re.findall(rf"=> ({LIBRARIES}/\S+)", listing)]:
            files.add_alone(path, f"{PEER_DIRECTORY}/{os.path.basename(path)}")
        start = f"{PEER_DIRECTORY}/{LOADER.name} --library-path {PEER_DIRECTORY} {start}"
    else:
        files.add(program, start)
    directories = [*FIRMWARE_DIRECTORIES, "/usr/share/qemu", "/usr/share/seabios"]
    for name in PEER_FIRMWARE:
        places = [Path(directory) / name for directory in directories]
        found = next((path for path in places if path.exists()), None)
        if not found:
            raise LabError(f"QEMU's '{name}' not found: install the Debian package seabios")
        files.add(found, f"{PEER_DIRECTORY}/{name}")
    script = f'#!/bin/sh\nexec {start} -L {PEER_DIRECTORY} "$@"\n'
    return {f"/usr/bin/{PROGRAM}": (script, 0o755)}


def _is_ours(program):
    return program.startswith(f"{DIRECTORY}/")


def _version(program):
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version (\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def _download():
    with locked(LAB_DIRECTORY / "qemu.lock"):
        if DIRECTORY.exists():
            return
        progress(f"downloading QEMU from {SUITES[0]} ...")
        with tempfile.TemporaryDirectory(prefix=".new-", dir=LAB_DIRECTORY) as temporary:
            unpacked = Path(temporary) / "qemu"
            with private_apt(*SUITES) as apt:
                apt.unpack([*PACKAGES, *apt.libraries(PACKAGES[0])], unpacked)
            os.rename(unpacked, DIRECTORY)
        progress("")
