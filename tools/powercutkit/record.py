"""Records of a disk's writes and flushes, as `--disk record=FILE` writes them (docs/faults.md)."""

import mmap
import os
import struct
from dataclasses import dataclass

MAGIC = b"RSWRITES"
VERSION = 1
_HEADER = struct.Struct("<8sIIQI36x")
_ENTRY = struct.Struct("<IBBHQQQqiI")
_ENTRY_MAGIC = 0x59525452
SUBMITTED, COMPLETED, END = 1, 2, 3
WRITE, FLUSH, DISCARD, ZEROES = 1, 2, 3, 4
NAMES = {WRITE: "write", FLUSH: "flush", DISCARD: "discard", ZEROES: "zeroes"}
_DURABLE = 1


class Problem(Exception):
    """What the user can mend; the text is one line that says how."""


@dataclass(eq=False)
class Request:
    """One that changes the disk, or a flush."""

    number: int
    op: int
    durable: bool
    offset: int
    length: int
    data_at: int        # In the record's file; of writes.

    @property
    def end(self):
        return self.offset + self.length

    def overlaps(self, other):
        return self.offset < other.end and other.offset < self.end

    def __str__(self):
        place = "" if self.op == FLUSH else f" {self.offset}+{self.length}"
        return f"{self.number}: {NAMES[self.op]}{place}{' durable' if self.durable else ''}"


@dataclass(frozen=True)
class Entry:
    request: Request
    is_submission: bool
    result: int = 0

    @property
    def is_flushed(self):
        return not self.is_submission and self.request.op == FLUSH and self.result == 0


@dataclass
class Record:
    disk_bytes: int
    block: int          # What is never torn.
    entries: list
    ended_early: bool   # By its limit, or since it could not be written.
    cut_off: bool       # Its last entry is not whole: whoever wrote it was killed.
    file: mmap.mmap

    def data(self, request, begin=0, end=None):
        """Returns the bytes [begin, end) of a write."""
        end = request.length if end is None else end
        return self.file[request.data_at + begin:request.data_at + end]


def _check(holds, path, at, what):
    if not holds:
        raise Problem(f"record '{path}' is broken at byte {at}: {what}; record anew")


def read_record(path):
    """Returns the record in a file."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < _HEADER.size:
                raise Problem(f"'{path}' is no record: it is shorter than a record's header")
            bytes_ = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise Problem(f"cannot read the record '{path}': {error.strerror}") from None
    magic, version, header_bytes, disk_bytes, block = _HEADER.unpack_from(bytes_)
    if magic != MAGIC:
        raise Problem(f"'{path}' is no record: give a file that --disk record=FILE has written")
    if version != VERSION:
        raise Problem(f"record '{path}' has version {version}, and this reads {VERSION}")
    _check(header_bytes >= _HEADER.size and block >= 512, path, 0, "its header makes no sense")
    record = Record(disk_bytes, block, [], False, False, bytes_)
    _read_entries(record, path, header_bytes)
    return record


def _read_entries(record, path, at):
    under_way = {}
    while at < len(record.file):
        if at + _ENTRY.size > len(record.file):
            record.cut_off = True
            return
        magic, kind, op, flags, number, offset, length, _, result, _ = _ENTRY.unpack_from(
            record.file, at)
        _check(magic == _ENTRY_MAGIC and kind in (SUBMITTED, COMPLETED, END), path, at,
               "there is no entry")
        if kind == END:
            record.ended_early = True
            return
        if kind == COMPLETED:
            _check(number in under_way, path, at, f"request {number} ends, and never began")
            record.entries.append(Entry(under_way.pop(number), False, result))
            at += _ENTRY.size
            continue
        _check(op in NAMES and number not in under_way, path, at, f"request {number} makes no sense")
        _check(offset + length <= record.disk_bytes, path, at, "a request is beyond the disk's end")
        request = Request(number, op, bool(flags & _DURABLE), offset, length, at + _ENTRY.size)
        at += _ENTRY.size + (length if op == WRITE else 0)
        if at > len(record.file):
            record.cut_off = True
            return
        under_way[number] = request
        record.entries.append(Entry(request, True))
