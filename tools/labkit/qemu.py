"""The QEMU that emulates the lab.

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
