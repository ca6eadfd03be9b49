"""How often guests have left for the host to reach a device: each access that KVM traces (kvm_mmio,
kvm_fast_mmio and kvm_pio), whoever serves it, but for the serial console's. A kick is one. The host's
own interrupts are none.

KVM's counters in debugfs would say it too, but not on a host that is locked down. A host that lets
nobody count has no exits in its results.
"""

import ctypes
import fcntl
import os
import struct
from pathlib import Path

_TRACEFS = Path("/sys/kernel/tracing")
# With what they are to be counted by, if not all: what the guest prints is not of its work.
_EVENTS = {"kvm_mmio": None, "kvm_fast_mmio": None, "kvm_pio": b"port < 0x3f8 || port > 0x3ff"}

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
# perf_event_open(2)
_SYS_PERF_EVENT_OPEN = 298
_PERF_TYPE_TRACEPOINT = 2
_ATTRIBUTE_BYTES = 64
_PERF_FLAG_FD_CLOEXEC = 8
_PERF_EVENT_IOC_SET_FILTER = 0x40082406


def make_countable():
    """Mounts tracefs, for this process and what it starts alone, unless it is there. What cannot be
    had is left out."""
    if _event_ids() or _LIBC.unshare(_CLONE_NEWNS) != 0:
        return
    if _LIBC.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None) == 0:
        _LIBC.mount(b"tracefs", os.fsencode(_TRACEFS), b"tracefs", 0, None)


class Counter:
    """Of the vCPUs' threads of one machine, each from when it is first seen."""

    def __init__(self):
        self._events = _event_ids()
        self._files = {}  # thread -> file descriptors

    def count(self, threads):
        """The exits of these and all earlier threads so far; None if nobody counts."""
        for thread in threads:
            if thread not in self._files:
                self._files[thread] = [file for file in (_open(*event, thread)
                                                         for event in self._events) if file >= 0]
        files = [file for of_thread in self._files.values() for file in of_thread]
        if not files:
            return None
        return sum(int.from_bytes(os.read(file, 8), "little") for file in files)

    def close(self):
        for files in self._files.values():
            for file in files:
                os.close(file)
        self._files = {}


def _event_ids():
    """(number, condition) of each; none if they cannot be had."""
    try:
        return [(int((_TRACEFS / "events" / "kvm" / event / "id").read_text()), condition)
                for event, condition in _EVENTS.items()]
    except (OSError, ValueError):
        return []


def _open(event, condition, thread):
    attribute = struct.pack("IIQ", _PERF_TYPE_TRACEPOINT, _ATTRIBUTE_BYTES, event)
    attribute = attribute.ljust(_ATTRIBUTE_BYTES, b"\0")
    file = _LIBC.syscall(_SYS_PERF_EVENT_OPEN, attribute, thread, -1, -1, _PERF_FLAG_FD_CLOEXEC)
    if file >= 0 and condition is not None:
        fcntl.ioctl(file, _PERF_EVENT_IOC_SET_FILTER, condition + b"\0")
    return file
