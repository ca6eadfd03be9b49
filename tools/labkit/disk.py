"""The lab's root disk: carries files in, and the files the command wrote out.

An ext4 image rather than a shared directory, because Debian's cloud kernel has no 9p. Holes stay
holes on the way in and out, nothing is unpacked into L1's memory, and e2fsprogs fills and reads an
image without root.
"""

import os
import subprocess

from .common import LabError, find_tool, last_line, replacing

FREE_BYTES = 16 << 30  # For what the command writes; the image is sparse.
COPY_BYTES = 1 << 20
SECTOR_BYTES = 512  # The unit of st_blocks.


def create(image, files, texts):
    """Makes the image from a FileSet, and from `texts`: small files as {path: (contents, mode)}."""
    sources = dict(files.files)
    for number, (path, (contents, mode)) in enumerate(texts.items()):
        source = image.with_name(f"text-{number}")
        source.write_bytes(os.fsencode(contents))
        source.chmod(mode)
        sources[path] = str(source)
    sources = {_visible_path(path): source for path, source in sources.items()}
    directories = {_visible_path(path) for path in files.directories}
    directories.update(os.path.dirname(path) for path in sources)
    used = sum(os.stat(source).st_blocks * SECTOR_BYTES for source in sources.values())
    with open(image, "wb") as output:
        output.truncate(used + used // 8 + FREE_BYTES)
    # No journal: the image lives for one run, and is only read after a sync.
    _run([find_tool("mke2fs", "e2fsprogs"), "-q", "-F", "-t", "ext4", "-m", "0",
          "-O", "^has_journal,^resize_inode",
          "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", str(image)])
    _debugfs_write(image, _fill_commands(sources, directories))


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


def _debugfs_write(image, commands):
    script = image.with_name("debugfs-commands")
    script.write_bytes(b"".join(os.fsencode(command) + b"\n" for command in commands))
    messages = _run([find_tool("debugfs", "e2fsprogs"), "-w", "-f", str(script), str(image)])
    # debugfs reports success whatever happens. Its first line is its version.
    complaints = [line for line in messages.splitlines() if not line.startswith("debugfs ")]
    if complaints:
        raise LabError(f"cannot fill the lab's disk: {complaints[0]}")


def _run(command):
    result = subprocess.run(command, capture_output=True, check=False)
    messages = result.stderr.decode(errors="replace")
    if result.returncode != 0:
        raise LabError(f"cannot make the lab's disk with {command[0]}: {last_line(messages)}")
    return messages
