"""The image of a disk in a file: what is written for one look is taken back after it."""

import os

from powercutkit.record import Problem

_PIECE = 1 << 20


class Image:
    """A file that is a disk. A copy: nobody else has it."""

    def __init__(self, path, disk_bytes, source=None):
        self.path = path
        self._undo = []
        if source is not None:
            _copy(source, path)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC |
                             (os.O_TRUNC if source is None else 0), 0o600)
        if source is not None and os.fstat(self._file).st_size != disk_bytes:
            raise Problem(f"image '{source}' has {os.fstat(self._file).st_size} bytes, and the disk "
                          f"of the record {disk_bytes}: give the image that it began with")
        os.ftruncate(self._file, disk_bytes)

    def write(self, offset, data, undoable=False):
        if undoable:
            self._undo.append((offset, os.pread(self._file, len(data), offset)))
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, memoryview(data)[done:], offset + done)

    def zero(self, offset, length, undoable=False):
        """A hole is zeroes already, so that a discard of a whole disk costs little."""
        for begin, end in _data_in(self._file, offset, offset + length):
            self.write(begin, bytes(end - begin), undoable)

    def undo(self):
        while self._undo:
            self.write(*self._undo.pop())

    def copy_to(self, path):
        _copy(self.path, path)

    def close(self):
        os.close(self._file)


def _data_in(file, begin, end):
    """Yields the pieces of a range that are no holes."""
    while begin < end:
        try:
            begin = os.lseek(file, begin, os.SEEK_DATA)
        except OSError:     # There is none behind it.
            return
        if begin >= end:
            return
        stop = min(os.lseek(file, begin, os.SEEK_HOLE), end, begin + _PIECE)
        yield begin, stop
        begin = stop


def _copy(source, target):
    try:
        with open(source, "rb") as old, open(target, "wb") as new:
            size = os.fstat(old.fileno()).st_size
            new.truncate(size)
            for begin, end in _data_in(old.fileno(), 0, size):
                new.seek(begin)
                while begin < end:
                    begin += os.sendfile(new.fileno(), old.fileno(), begin, end - begin)
    except OSError as error:
        raise Problem(f"cannot copy '{source}' to '{target}': {error.strerror}") from None
