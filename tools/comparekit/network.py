"""The network that is measured on: a namespace of this process's own with a tap in it.

Nothing is left of it whatever happens: a namespace ends with its last process, and a tap with its
namespace. From enter() on, this process and all that it starts see that network and no other.
"""

import ctypes
import errno
import fcntl
import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .common import BadInput, MeasureError

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)

# if_tun.h
_TUN = "/dev/net/tun"
_TUNSETIFF, _TUNSETPERSIST = 0x400454CA, 0x400454CB
_IFF_TAP, _IFF_NO_PI, _IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x0100

_SETTINGS = {
    "net/ipv6/conf/all/disable_ipv6": "1",      # Nobody asks for neighbours and routers there.
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/icmp_ratelimit": "0",
}


MASK = "255.255.255.0"


@dataclass(frozen=True)
class Tap:
    name: str = "ringside0"
    host_address: str = "10.77.0.1"
    guest_address: str = "10.77.0.2"
    guest_mac: str = "52:54:00:4d:00:02"


def enter():
    """Moves this process into a new namespace. There is no way back."""
    if not os.access(_TUN, os.R_OK | os.W_OK):
        raise BadInput(f"'{_TUN}' cannot be opened: load the module tun, and run this as root")
    if _LIBC.unshare(_CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        remedy = "run this as root" if error == errno.EPERM else os.strerror(error)
        raise BadInput(f"no network namespace can be made: {remedy}")
    for path, value in _SETTINGS.items():
        setting = Path("/proc/sys") / path
        if setting.exists():  # A kernel without IPv6 has none of it.
            setting.write_text(value)
    _ip("link set lo up")


def add(tap, multi_queue=False):
    """Makes a tap that each VMM opens by its name, the host's end of which has its address. With
    `multi_queue` one that may be opened several times, and only so that it may."""
    _make_tap(tap.name, _IFF_MULTI_QUEUE if multi_queue else 0)
    for words in (f"address add {tap.host_address}/24 dev {tap.name}",
                  f"link set {tap.name} up",
                  # Else the kernel would ask for it every now and then.
                  f"neighbour replace {tap.guest_address} lladdr {tap.guest_mac} nud permanent "
                  f"dev {tap.name}"):
        _ip(words)


def received(tap):
    """How many frames the host has taken from the guest so far."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == tap.name:
            return int(numbers.split()[1])
    raise MeasureError(f"the tap '{tap.name}' is gone")


def _make_tap(name, flags):
    """A persistent one: it stays when it is closed."""
    with open(_TUN, "rb+", buffering=0) as tun:
        request = struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | flags)
        fcntl.ioctl(tun, _TUNSETIFF, request)
        fcntl.ioctl(tun, _TUNSETPERSIST, 1)


def _ip(words):
    result = subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BadInput(f"'ip {words}': {result.stderr.strip()}")
