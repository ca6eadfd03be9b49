"""Works out which host files a command needs and where the lab shows them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from .common import CHECKOUT, LabError, find_tool

RELEASE_DIRECTORY = CHECKOUT / "build" / "release"

# What the lab's kernel provides itself. (/dev/shm is a tmpfs, but files are put into it.)
KERNEL_DIRECTORIES = ("/proc/", "/sys/", "/dev/")


class FileSet:
    """Maps absolute paths in the lab to the host files that go there, libraries included."""

    def __init__(self):
        self.files = {}
        self.directories = set()

    def add(self, host_path, lab_path=None):
        """Adds a file, or a directory with all it contains. Symbolic links are followed."""
        host_path = Path(os.path.abspath(host_path))
        lab_path = os.path.abspath(lab_path or host_path)
        _check_name(lab_path)
        if host_path.is_dir():
            self._add_directory(host_path, lab_path, ancestors=())
        elif host_path.is_file():
            self._add_file(host_path, lab_path)
            self._add_libraries(host_path)
        else:
            raise LabError(f"file '{host_path}' does not exist or is not a regular file: "
                           "check the path given to the lab")

    def add_alone(self, host_path, lab_path):
        """Adds a file, and of a program not the libraries."""
        _check_name(lab_path)
        self._add_file(host_path, lab_path)

    def add_mentioned(self, argument):
        """Adds the files an argument names, also as in --disk=FILE or path=FILE,readonly=on.

        A directory that is named, or that a named path lies in, is there too, but empty: for
        results.
        """
        for name in [argument, *re.split("[=,]", argument)]:
            path = os.path.abspath(name)
            if not name or not _belongs_to_host(path) or "\0" in name:
                continue
            if os.path.isfile(path):
                self.add(path)
            elif "/" in name and os.path.isdir(path):
                self.directories.add(path)
            elif "/" in name and os.path.isdir(os.path.dirname(path)):
                self.directories.add(os.path.dirname(path))

    def add_command(self, name):
        """Adds the program; returns the name to start it by in the lab."""
        if name == "ringside":
            program = RELEASE_DIRECTORY / name
            if not program.is_file():
                raise LabError(f"'{program}' does not exist: build it first, or name another "
                               "program by its path")
            self.add(program)
            return str(program)
        if "/" in name:
            self.add_mentioned(name)
            return name
        program = None if name in busybox_applets() else shutil.which(name)
        if program:
            self.add(program)
        return program or name

    def _add_file(self, host_path, lab_path):
        if not os.access(host_path, os.R_OK):
            raise LabError(f"file '{host_path}' cannot be read: check its permissions")
        self.files[lab_path] = os.path.realpath(host_path)
        self.directories.add(os.path.dirname(lab_path))

    def _add_directory(self, host_path, lab_path, ancestors):
        real_path = os.path.realpath(host_path)
        if real_path in ancestors:
            return  # A link to a directory above would never end.
        self.directories.add(lab_path)
        for entry in os.scandir(host_path):
            _check_name(entry.name)
            target = os.path.join(lab_path, entry.name)
            if entry.is_dir():
                self._add_directory(entry.path, target, (*ancestors, real_path))
            elif entry.is_file():
                self._add_file(entry.path, target)

    def _add_libraries(self, program):
        libraries = libraries_of(program)
        for library in libraries:
            self._add_file(library, library)
        # Tells the loader of libraries outside its own search path.
        if libraries and os.path.exists("/etc/ld.so.cache"):
            self._add_file("/etc/ld.so.cache", "/etc/ld.so.cache")


def libraries_of(program):
    """Returns the paths of the shared libraries an ELF program loads, its loader included."""
    with open(program, "rb") as opened:
        if opened.read(4) != b"\x7fELF":
            return []
    result = subprocess.run([find_tool("ldd", "libc-bin"), program], capture_output=True, text=True,
                            check=False)
    missing = re.search(r"(\S+) => not found", result.stdout)
    if missing:
        raise LabError(f"library '{missing.group(1)}' of '{program}' not found: install it")
    return re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", result.stdout, re.MULTILINE)


def busybox():
    """Returns the path of the statically linked busybox every initramfs here is made of."""
    path = find_tool("busybox", "busybox-static")
    if libraries_of(path):
        raise LabError(f"'{path}' is dynamically linked: install the Debian package busybox-static")
    return path


def busybox_applets():
    return subprocess.run([busybox(), "--list"], capture_output=True, text=True,
                          check=True).stdout.split()


def _belongs_to_host(path):
    return path.startswith("/dev/shm/") or not (path + "/").startswith(KERNEL_DIRECTORIES)


def _check_name(path):
    if "\n" in path:
        raise LabError(f"the name {path!r} contains a line break: rename the file")
