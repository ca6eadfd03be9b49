"""Root disks: the lab's own, which carries files in and the files the command wrote out, and those
of L2 guests.

The lab has an ext4 image rather than a shared directory, because Debian's cloud kernel has no 9p.
Holes stay holes on the way in and out, nothing is unpacked into L1's memory, and e2fsprogs fills
and reads an image without root.
"""

import os
import subprocess
from pathlib import Path

from .common import (LAB_DIRECTORY, SCRIPTS, LabError, find_tool, last_line, replacing,
                     temporary_directory)
from .files import busybox

FREE_BYTES = 16 << 30  # For what the command writes; the image is sparse.
COPY_BYTES = 1 << 20
SECTOR_BYTES = 512  # The unit of st_blocks.


# The lab's disk lives for one run, and is only read after a sync.
NO_JOURNAL = ("-m", "0", "-O", "^has_journal,^resize_inode")

# What a guest's init mounts something on, or programs expect.
GUEST_DIRECTORIES = ("/dev", "/etc", "/mnt", "/proc", "/root", "/run", "/sbin", "/sys", "/tmp",
                     "/usr/bin", "/usr/sbin")


def create(image, files, texts):
    """Makes the lab's disk from a FileSet, and from `texts`: small files as {path: (contents,
    mode)}."""
    _create(image, files, texts, _used_bytes(files) * 9 // 8 + FREE_BYTES, NO_JOURNAL,
            image.parent)


def create_guest_disk(path, files, autorun, size_bytes):
    """Makes a root disk for L2 guests: ext4 with busybox, guest-init.sh as init, and `files`."""
    files.add(busybox(), "/bin/busybox")
    files.directories.update(GUEST_DIRECTORIES)
    texts = {"/sbin/init": ((SCRIPTS / "guest-init.sh").read_text(), 0o755)}
    if autorun:
        texts["/autorun"] = (Path(autorun).read_text(), 0o755)
    with temporary_directory(LAB_DIRECTORY / "run") as scratch, replacing(path) as output:
        _create(Path(output.name), files, texts, size_bytes, (), scratch)


def _used_bytes(files):
    return sum(os.stat(source).st_blocks * SECTOR_BYTES for source in files.files.values())


def _create(image, files, texts, size_bytes, options, scratch):
    sources = dict(files.files)
    for number, (path, (contents, mode)) in enumerate(texts.items()):
        source = scratch / f"text-{number}"
        source.write_bytes(os.fsencode(contents))
        source.chmod(mode)
        sources[path] = str(source)
    sources = {_visible_path(path): source for path, source in sources.items()}
    directories = {_visible_path(path) for path in files.directories}
    directories.update(os.path.dirname(path) for path in sources)
    with open(image, "wb") as output:
        output.truncate(size_bytes)
    _run([find_tool("mke2fs", "e2fsprogs"), "-q", "-F", "-t", "ext4", *options,
          "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", str(image)])
    _debugfs_write(image, scratch / "debugfs-commands", _fill_commands(sources, directories))


def read_file(image, path, host_path):
    """Copies a file out of the image, leaving holes where there are only zeros."""
    command = [find_tool("debugfs", "e2fsprogs"), "-R", f"cat {_quoted(path)}", str(image)]
    with replacing(host_path) as output, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as debugfs:
        for block in iter(lambda: debugfs.stdout.read(COPY_BYTES), b""):
            if block.count(0) == len(block):
                output.seek(len(block), os.SEEK_CUR)
            else:
                output.write(block)
        output.truncate()
    if debugfs.returncode != 0:
        raise LabError(f"cannot read '{path}' from the lab's disk: debugfs ended with status "
                       f"{debugfs.returncode}")


def _visible_path(path):
    # L1 mounts a tmpfs on /dev/shm; run.sh copies the files into it.
    return "/.lab/shm/" + path[len("/dev/shm/"):] if path.startswith("/dev/shm/") else path


def _fill_commands(sources, directories):
    for directory in sorted(_with_parents(directories), key=lambda path: path.count("/")):
        yield f"mkdir {_quoted(directory)}"
    current = None
    for path in sorted(sources, key=os.path.split):
        directory, name = os.path.split(path)
        if directory != current:
            yield f"cd {_quoted(directory)}"
            current = directory
        yield f"write {_quoted(sources[path])} {_quoted(name)}"


def _with_parents(directories):
    result = set()
    for directory in directories:
        while directory not in ("/", "") and directory not in result:
            result.add(directory)
            directory = os.path.dirname(directory)
    return result


def _quoted(path):
    return '"' + path.replace('"', '""') + '"'


def _debugfs_write(image, script, commands):
    script.write_bytes(b"".join(os.fsencode(command) + b"\n" for command in commands))
    messages = _run([find_tool("debugfs", "e2fsprogs"), "-w", "-f", str(script), str(image)])
    # debugfs reports success whatever happens. Its first line is its version.
    complaints = [line for line in messages.splitlines() if not line.startswith("debugfs ")]
    if complaints:
        raise LabError(f"cannot fill the disk: {complaints[0]}")


def _run(command):
    result = subprocess.run(command, capture_output=True, check=False)
    messages = result.stderr.decode(errors="replace")
    if result.returncode != 0:
        raise LabError(f"cannot make a disk with {command[0]}: {last_line(messages)}")
    return messages
