"""Writes initramfs archives: the cpio "newc" format, as the kernel's
Documentation/driver-api/early-userspace/buffer-format.rst describes it."""

import stat


class CpioWriter:
    """Adds entries to an open binary file; needs no root, not even for device nodes."""

    def __init__(self, output):
        self._output = output
        self._inode = 0
        self._directories = set()

    def directory(self, path):
        """Adds a directory and its parents; a directory added before is left alone."""
        path = path.strip("/")
        if not path or path in self._directories:
            return
        self.directory(path.rpartition("/")[0])
        self._directories.add(path)
        self._entry(path, stat.S_IFDIR | 0o755)

    def file(self, path, contents, mode=0o644):
        self._parent(path)
        self._entry(path, stat.S_IFREG | mode, contents)

    def symlink(self, path, target):
        self._parent(path)
        self._entry(path, stat.S_IFLNK | 0o777, target.encode())

    def character_device(self, path, major, minor):
        self._parent(path)
        self._entry(path, stat.S_IFCHR | 0o600, device=(major, minor))

    def finish(self):
        self._inode = -1  # The trailer has inode number 0.
        self._entry("TRAILER!!!", 0)

    def _parent(self, path):
        self.directory(path.strip("/").rpartition("/")[0])

    def _entry(self, path, mode, contents=b"", device=(0, 0)):
        name = path.strip("/").encode(errors="surrogateescape") + b"\0"
        self._inode += 1
        fields = (self._inode, mode, 0, 0, 1, 0, len(contents), 0, 0, *device, len(name), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._output.write(_padded(header + name))
        self._output.write(_padded(contents))


def _padded(data):
    return data + b"\0" * (-len(data) % 4)
