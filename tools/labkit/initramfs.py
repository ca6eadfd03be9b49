"""Builds the two initramfs archives: L1's, which is cached, and one for L2 guests."""

import hashlib
import io
import os
from pathlib import Path

from .common import LAB_DIRECTORY, SCRIPTS, LabError, locked, replacing
from .cpio import CpioWriter
from .files import FileSet, busybox
from .kernels import read_module

DIRECTORIES = ("bin", "sbin", "usr/bin", "usr/sbin", "dev", "etc", "proc", "root", "run", "sys",
               "tmp", "mnt", "modules")


def lab_initramfs(kernel, module_names):
    """Returns the path of L1's initramfs, built if this combination was not needed before."""
    directory = LAB_DIRECTORY / "initramfs"
    modules = kernel.load_order(module_names)
    init = (SCRIPTS / "init.sh").read_bytes()
    key = hashlib.sha256(b"\0".join([
        kernel.release.encode(), Path(busybox()).read_bytes(), init, Path(__file__).read_bytes(),
        *(module.name.encode() for module in modules)])).hexdigest()[:16]
    path = directory / f"{kernel.release}-{key}.cpio"
    with locked(directory / ".lock"):
        if not path.exists():
            with replacing(path) as output:
                output.write(_archive(init, modules, FileSet()))
    return path


def write_guest_initrd(path, autorun, modules, files):
    """Writes an initramfs for L2 guests: /init runs /autorun, or else an interactive shell."""
    if autorun:
        files.add(autorun, "/autorun")
    with replacing(path) as output:
        output.write(_archive((SCRIPTS / "guest-init.sh").read_bytes(), modules, files))


def _archive(init, modules, files):
    # Not compressed: TCG would take longer to unpack it than to copy it.
    output = io.BytesIO()
    writer = CpioWriter(output)
    for directory in [*DIRECTORIES, *sorted(files.directories)]:
        writer.directory(directory)
    # The kernel opens it for /init before anything is mounted.
    writer.character_device("dev/console", 5, 1)
    writer.file("bin/busybox", Path(busybox()).read_bytes(), 0o755)
    writer.symlink("bin/sh", "busybox")
    writer.file("init", init, 0o755)
    for number, module in enumerate(modules):
        # The names sort in the order to load them in.
        writer.file(f"modules/{number:02}-{module.name.split('.ko')[0]}.ko", read_module(module))
    for lab_path, host_path in sorted(files.files.items()):
        if os.path.getsize(host_path) >= 1 << 32:
            raise LabError(f"'{host_path}' is too large for an initramfs (4 GiB): use a disk")
        mode = 0o755 if lab_path == "/autorun" else os.stat(host_path).st_mode & 0o777
        writer.file(lab_path, Path(host_path).read_bytes(), mode)
    writer.finish()
    return output.getvalue()
