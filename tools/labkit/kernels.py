"""Gets Debian's stock cloud kernels, without root and without touching /boot or apt's own state.

kernels/VERSION/ then holds bzImage, vmlinux, config and modules/RELEASE/. Downloaded once.
"""

import lzma
import os
import re
import struct
import tempfile
import zlib
from pathlib import Path

from .apt import private_apt, run_tool
from .common import LAB_DIRECTORY, LabError, find_tool, locked, progress

KERNELS_DIRECTORY = LAB_DIRECTORY / "kernels"

# The suite each kernel comes from. The mirror is the one this system's own sources name.
SUITES = {"6.1": "bookworm", "6.12": "bookworm-backports"}


class Kernel:
    """One unpacked kernel package."""

    def __init__(self, directory):
        self.directory = directory
        self.bzimage = directory / "bzImage"
        self.vmlinux = directory / "vmlinux"
        self.modules = directory / "modules"

    @property
    def release(self):
        return next(self.modules.iterdir()).name

    def load_order(self, names):
        """Returns the module files for `names`, every module after those it depends on."""
        files = {_module_name(path): path for path in self.modules.rglob("*.ko*")}
        builtin_list = self.modules / self.release / "modules.builtin"
        builtin = {_module_name(Path(line)) for line in builtin_list.read_text().split()}
        order = []

        def visit(name):
            name = name.replace("-", "_")
            if name in builtin:
                return
            if name not in files:
                raise LabError(f"kernel {self.release} has no module '{name}': "
                               f"see the names under {self.modules}")
            for dependency in _dependencies(read_module(files[name])):
                visit(dependency)
            if files[name] not in order:
                order.append(files[name])

        for name in names:
            visit(name)
        return order


def _module_name(path):
    return path.name.split(".ko")[0].replace("-", "_")


def _dependencies(module):
    # The package has no modules.dep: depmod makes that at installation, from this very field.
    match = re.search(rb"\0depends=([^\0]*)\0", module)
    return match.group(1).decode().split(",") if match and match.group(1) else []


def read_module(path):
    """Returns the ELF image of a module, which newer packages compress."""
    contents = path.read_bytes()
    return lzma.decompress(contents) if path.suffix == ".xz" else contents


def get_kernel(version):
    """Returns the kernel, downloading it first if this checkout has not got it yet."""
    directory = KERNELS_DIRECTORY / version
    if not directory.exists():
        with locked(KERNELS_DIRECTORY / ".lock"):
            if not directory.exists():
                _download(version, directory)
    kernel = Kernel(directory)
    for path in (kernel.bzimage, kernel.vmlinux, kernel.modules):
        if not path.exists():
            raise LabError(f"'{path}' is missing: remove {directory} to have it downloaded again")
    return kernel


def _download(version, directory):
    progress(f"downloading kernel {version} ...")
    with tempfile.TemporaryDirectory(prefix=".new-", dir=KERNELS_DIRECTORY) as temporary:
        unpacked = Path(temporary) / "unpacked"
        with private_apt(SUITES[version]) as apt:
            apt.unpack([_package_name(apt, version)], unpacked)
        result = Path(temporary) / version
        _arrange(unpacked, result)
        os.rename(result, directory)
    progress("")


def _package_name(apt, version):
    if version == "6.1":
        names = [name for name in apt.dependencies("linux-image-cloud-amd64")
                 if name.startswith("linux-image-")]
    else:
        # The backports suite keeps the older versions too, each as a package of its own.
        prefix = f"linux-image-{version}"
        pattern = re.escape(prefix) + r"[.\d]*\+[\w.+]*-cloud-amd64"
        names = [name for name in apt.names(prefix) if re.fullmatch(pattern, name)]
    if not names:
        raise LabError(f"suite {apt.suites} has no cloud kernel {version}: put bzImage, vmlinux and "
                       f"modules/RELEASE/ into {KERNELS_DIRECTORY / version} by hand")
    return max(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def _arrange(unpacked, result):
    result.mkdir()
    boot = unpacked / "boot"
    os.rename(next(boot.glob("vmlinuz-*")), result / "bzImage")
    os.rename(next(boot.glob("config-*")), result / "config")
    modules = next(path for path in (unpacked / "lib/modules", unpacked / "usr/lib/modules")
                   if path.exists())
    os.rename(modules, result / "modules")
    (result / "vmlinux").write_bytes(extract_vmlinux((result / "bzImage").read_bytes()))


def extract_vmlinux(image):
    """Returns the ELF kernel inside a bzImage (Documentation/arch/x86/boot.rst, payload_offset)."""
    if image[0x202:0x206] != b"HdrS":
        raise LabError("the kernel image has no x86 setup header: it is not a bzImage")
    setup_sectors = image[0x1f1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    return _decompress(image[start:start + length])


def _decompress(payload):
    # All but gzip are followed by the uncompressed size in 4 bytes, which is not part of the
    # stream.
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(wbits=31).decompress(payload)
    if payload.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(payload[:-4])
    if payload.startswith(b"\x02\x21\x4c\x18"):
        return run_tool([find_tool("lz4", "lz4"), "-dc"], "decompress vmlinux", payload[:-4])
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return run_tool([find_tool("zstd", "zstd"), "-dcq"], "decompress vmlinux", payload[:-4])
    raise LabError(f"the kernel is compressed in an unknown way (it begins with "
                   f"{payload[:4].hex()}): gzip, xz, lz4 and zstd are known")
