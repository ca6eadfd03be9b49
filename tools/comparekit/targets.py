"""What is measured on: a file on a disk, a file in tmpfs, and nothing at all."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .common import BadInput

GIB = 1 << 30
MIB = 1 << 20
_CHUNK = 4 * MIB
TMPFS_DIRECTORY = Path("/dev/shm")


@dataclass
class Target:
    name: str
    text: str        # For the table.
    path: str        # Empty: the null backend.
    size: int
    direct: bool     # Whether O_DIRECT is used.
    latency_us: int = 0  # Of the null backend: what each request takes.
    helper = None        # The number of a process that serves the guest and is nobody else's.

    @property
    def is_null(self):
        return not self.path

    @property
    def is_checked(self):
        """What the null backend returns is nobody's."""
        return not self.is_null

    def jobs(self, contestant, settings):
        """How many jobs closed_loop() asks of a contestant."""
        return len(contestant.depths(settings["depths"]))

    def closed_loop(self, contestant, settings):
        """The guest's words, beside those that all jobs have."""
        return ["qd=" + ",".join(map(str, contestant.depths(settings["depths"]))),
                *settings["thinking"]]

    def load(self, settings):
        """The guest's words of any loop."""
        return [f"rw={settings['rw']}", f"rwmix={settings['rwmix']}", f"bs={settings['bs']}"]

    def verification(self, verified_mib):
        """The guest's words of a short mixed load whose every byte is checked."""
        return ["rw=randrw", "verify=1", "bs=4k", "qd=8", f"size={verified_mib}M"]

    def check(self, jobs):
        """Looks from outside at what a contestant has done; raises MeasureError if that is wrong."""

    def prepare(self):
        """For those who read through the page cache: each run shall find the same."""
        if not self.is_null:
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Targets:
    """Makes the targets; as a context manager it takes their files away again."""

    def __init__(self, names, disk_directory, null_latency_us=0):
        self._names = names
        self._null_latency_us = null_latency_us
        self._disk_directory = disk_directory
        self._directories = []

    def __enter__(self):
        try:
            return [getattr(self, f"_{name}")() for name in self._names]
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)

    def _disk(self):
        if file_system(self._disk_directory) in ("tmpfs", "ramfs"):
            raise BadInput(f"--disk-dir '{self._disk_directory}' is not on a disk: give a "
                           "directory that is, or leave the target out by --targets tmpfs,null")
        path = self._file(self._disk_directory, GIB)
        direct = takes_direct(path)
        return Target("disk", _describe(path, 1, direct), path, GIB, direct)

    def _tmpfs(self):
        if not TMPFS_DIRECTORY.is_dir():
            raise BadInput(f"'{TMPFS_DIRECTORY}' is missing: mount a tmpfs there, or leave the "
                           "target out by --targets disk,null")
        size = 256 * MIB if shutil.disk_usage(TMPFS_DIRECTORY).free > GIB else 64 * MIB
        path = self._file(TMPFS_DIRECTORY, size)
        direct = takes_direct(path)
        return Target("tmpfs", _describe(path, size / GIB, direct), path, size, direct)

    def _null(self):
        latency = f", {self._null_latency_us} us a request" if self._null_latency_us else ""
        return Target("null", f"null backend, 1 GiB{latency} (QEMU: null-co)", "", GIB, False,
                      self._null_latency_us)

    def _file(self, parent, size):
        try:
            free = shutil.disk_usage(parent).free
            if free < size + size // 8:
                raise BadInput(f"'{parent}' has {free // MIB} MiB left, {size // MIB} are needed: "
                               "make room, or give another directory by --disk-dir")
            directory = tempfile.mkdtemp(prefix="ringside-compare-", dir=parent)
            self._directories.append(directory)
            path = os.path.join(directory, "disk.img")
            write_file(path, size)
        except OSError as error:
            raise BadInput(f"cannot write in '{parent}': {error.strerror}; give another directory "
                           "by --disk-dir") from error
        return path


def write_file(path, size):
    """Every block really written: reading an extent that never was costs no I/O."""
    chunk = bytearray(os.urandom(_CHUNK))
    with open(path, "wb", buffering=0) as file:
        for number in range(size // _CHUNK):
            chunk[:8] = number.to_bytes(8, "little")
            file.write(chunk)
        os.fsync(file.fileno())


def takes_direct(path):
    """tmpfs takes O_DIRECT since Linux 6.6."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
        return True
    except OSError:
        return False


def file_system(path):
    """The type of the file system that holds `path`, by the longest mount point above it."""
    path = os.path.realpath(path)
    best, name = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        mount = mount.encode().decode("unicode_escape")
        above = mount == "/" or path == mount or path.startswith(mount + "/")
        if above and len(mount) >= len(best):
            best, name = mount, kind
    return name


def _describe(path, gib, direct):
    size = f"{gib:g} GiB" if gib >= 1 else f"{gib * 1024:g} MiB"
    return f"file on {file_system(path)}, {size}, {'O_DIRECT' if direct else 'no O_DIRECT'}"
