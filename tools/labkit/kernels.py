"""Gets Debian's stock cloud kernels, without root and without touching /boot or apt's own state.

kernels/VERSION/ then holds bzImage, vmlinux, config and modules/RELEASE/. Downloaded once.
"""

import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path

from .common import LAB_DIRECTORY, LabError, find_tool, last_line, locked, progress

KERNELS_DIRECTORY = LAB_DIRECTORY / "kernels"

# The suite each kernel comes from. The mirror is the one this system's own sources name.
SUITES = {"6.1": "bookworm", "6.12": "bookworm-backports"}

# Suites of Debian whose mirror also carries bookworm, the best one first.
USABLE_SUITES = ("bookworm", "trixie", "forky", "stable", "oldstable", "testing", "sid", "unstable")


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
        package_file = PrivateApt(SUITES[version]).download(version, Path(temporary))
        _run([find_tool("dpkg", "dpkg"), "-x", package_file, unpacked], "unpack the kernel package")
        result = Path(temporary) / version
        _arrange(unpacked, result)
        os.rename(result, directory)
    progress("")


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
        return _run([find_tool("lz4", "lz4"), "-dc"], "decompress vmlinux", payload[:-4])
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return _run([find_tool("zstd", "zstd"), "-dcq"], "decompress vmlinux", payload[:-4])
    raise LabError(f"the kernel is compressed in a way the lab does not know ({payload[:4].hex()}): "
                   "gzip, xz, lz4 and zstd are known")


class PrivateApt:
    """apt with its own sources, lists and cache, so that the system's stay as they are."""

    def __init__(self, suite):
        self._suite = suite
        self._directory = LAB_DIRECTORY / "apt" / suite
        sources = self._directory / "lab.sources"
        self._options = []
        for option in (f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=-",
                       f"Dir::State::lists={self._directory / 'lists'}",
                       f"Dir::Cache={self._directory / 'cache'}", "Dir::State::status=/dev/null",
                       "APT::Architecture=amd64", "Acquire::Languages=none",
                       "APT::Sandbox::User=root"):
            self._options += ["-o", option]
        for part in ("lists/partial", "cache/archives/partial"):
            (self._directory / part).mkdir(parents=True, exist_ok=True)
        sources.write_text(sources_for(suite, system_sources()))

    def download(self, version, target):
        """Downloads the image package of kernel `version` into `target`; returns its path."""
        self._apt("apt-get", "update", "-q")
        package = self._package_name(version)
        self._apt("apt-get", "download", "-q", package, cwd=target)
        shutil.rmtree(self._directory)  # Some 60 MiB of lists that nothing needs again.
        return next(target.glob("*.deb"))

    def _package_name(self, version):
        if version == "6.1":
            text = self._apt("apt-cache", "depends", "linux-image-cloud-amd64")
            names = re.findall(r"Depends: (linux-image-\S+)", text)
        else:
            # The backports suite keeps the older versions too, each as a package of its own.
            prefix = f"linux-image-{version}"
            text = self._apt("apt-cache", "pkgnames", prefix)
            pattern = re.escape(prefix) + r"[.\d]*\+[\w.+]*-cloud-amd64"
            names = [name for name in text.split() if re.fullmatch(pattern, name)]
        if not names:
            raise LabError(f"suite {self._suite} has no cloud kernel {version}: put bzImage, vmlinux "
                           f"and modules/RELEASE/ into {KERNELS_DIRECTORY / version} by hand")
        return max(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])

    def _apt(self, program, *arguments, cwd=None):
        command = [find_tool(program, "apt"), *self._options, *arguments]
        return _run(command, f"get a kernel from {self._suite} with {program} {arguments[0]}",
                    cwd=cwd).decode()


def _run(command, purpose, input_bytes=b"", cwd=None):
    result = subprocess.run(command, input=input_bytes, capture_output=True, cwd=cwd, check=False)
    if result.returncode != 0:
        message = last_line(result.stderr.decode(errors="replace"))
        raise LabError(f"cannot {purpose}: {message}")
    return result.stdout


def system_sources(directory=Path("/etc/apt")):
    """Returns (URIs, suites, Signed-By) of every enabled binary entry, deb822 and one-line alike."""
    entries = []
    for path in sorted(directory.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            entries += _deb822_entry(stanza)
    for path in [directory / "sources.list", *sorted(directory.glob("sources.list.d/*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else []:
            entries += _one_line_entry(line)
    return entries


def _deb822_entry(stanza):
    lines = [line for line in stanza.splitlines() if not line.startswith("#")]
    # A value goes on in the lines that start with a blank: Signed-By may hold a whole key.
    fields = re.findall(r"^([\w-]+):((?:.*)(?:\n[ \t].*)*)", "\n".join(lines), re.MULTILINE)
    values = {name.lower(): value.strip(" \t") for name, value in fields}
    if "deb" not in values.get("types", "").split() or values.get("enabled", "yes").strip() == "no":
        return []
    return [(values.get("uris", "").split(), values.get("suites", "").split(),
             values.get("signed-by", ""))]


def _one_line_entry(line):
    match = re.match(r"deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)", line)
    if not match:
        return []
    signed_by = re.search(r"signed-by=(\S+)", match.group(1) or "")
    return [([match.group(2)], [match.group(3)], signed_by.group(1) if signed_by else "")]


def sources_for(suite, entries):
    """Returns a deb822 source for `suite` on the mirror that serves this system's Debian."""
    for usable in USABLE_SUITES:
        for uris, suites, signed_by in entries:
            if usable in suites and uris:
                stanza = f"Types: deb\nURIs: {' '.join(uris)}\nSuites: {suite}\nComponents: main\n"
                return stanza + (f"Signed-By: {signed_by}\n" if signed_by else "")
    raise LabError("no Debian entry (suite bookworm) in /etc/apt to get kernels from: put bzImage, "
                   f"vmlinux and modules/RELEASE/ into {KERNELS_DIRECTORY}/6.1 by hand")
