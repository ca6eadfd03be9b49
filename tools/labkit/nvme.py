"""L1's NVMe controller, for --nvme: QEMU's, behind the emulated IOMMU."""

import argparse
import os

from .common import LabError

ADDRESS = "0000:00:04.0"
MODULES = ("vfio-pci", "vfio_iommu_type1")
BLOCK_SIZES = ("512", "4096")


def namespace(text):
    """An argument FILE[:BLOCK_SIZE], as a pair."""
    path, separator, size = text.rpartition(":")
    if not separator or os.path.exists(text):
        path, size = text, BLOCK_SIZES[0]
    if size not in BLOCK_SIZES:
        raise argparse.ArgumentTypeError(f"block size '{size}' cannot be; give "
                                         + " or ".join(BLOCK_SIZES))
    return path, size


def qemu_arguments(namespaces):
    """One namespace a file, counted from 1; nothing if there are no files."""
    if not namespaces:
        return []
    slot = ADDRESS.partition(":00:")[2]
    arguments = ["-device", f"nvme,id=lab-nvme,serial=ringside-lab-nvme,addr={slot}"]
    for number, (path, size) in enumerate(namespaces, start=1):
        if not os.path.isfile(path):
            raise LabError(f"--nvme '{path}' is no file: make one with truncate")
        escaped = path.replace(",", ",,")
        arguments += [
            "-drive", f"file={escaped},if=none,id=lab-nvme-{number},format=raw,discard=unmap",
            "-device", f"nvme-ns,bus=lab-nvme,drive=lab-nvme-{number},nsid={number},"
                       f"logical_block_size={size},physical_block_size={size}"]
    return arguments
