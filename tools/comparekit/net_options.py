"""The command lines of what is compared beside disks: networks and vsocks."""

from . import net, option_types, options, vsock
from .common import RELEASE_DIRECTORY
from .iothread import POLLING, Default

WAYS = {"default": Default(), **POLLING}

NET_DESCRIPTION = """\
Compares networks: the same bare-metal guest on one tap under Ringside and under every other VMM found
here, in interleaved rounds, each run on a quiet machine; beside them the ceiling, a bare loop on that
tap without a guest. Round trips are ICMP echoes, which the host's kernel answers within the write of a
frame; frames out are dropped by the host; frames in come from a sender that knows when the tap has no
room. All of it is in a network namespace of the command's own, which ends with it: nothing of the
host's network is touched. Needs root. Prints tables and writes results.json, table.md and plots to
build/compare/DATE/. Without options: some five minutes."""

NET_EXAMPLES = """\
examples:
  tools/compare net
  tools/compare net --kinds echo --depths 1,4,16,64 --rounds 5
  tools/compare net --kinds in --in-rates 0,50000,200000 --only Ringside --only ceiling
  tools/compare net --qemu qemu-system-x86_64 --qemu lab --firecracker /opt/bin/firecracker"""

VSOCK_DESCRIPTION = """\
Compares vsocks: the same bare-metal guest and client under Ringside and under every other VMM found here
that has its vsock at a Unix socket, in interleaved rounds, each run on a quiet machine. Round trips:
the client connects ("CONNECT PORT") and sends messages, the guest sends them back. Streams out: the guest connects
and sends, the client reads. Flood: connections one after the other. Prints tables and writes results.json,
table.md and plots to build/compare/DATE/. Without options: some five minutes."""

VSOCK_EXAMPLES = """\
examples:
  tools/compare vsock
  tools/compare vsock --kinds echo --depths 1,4,16,64 --rounds 5
  tools/compare vsock --kinds out --messages 64,4096,65536 --firecracker /opt/bin/firecracker"""


def parse_net(arguments):
    parser = options.Parser(prog="tools/compare net", usage="tools/compare net [options]",
                            description=NET_DESCRIPTION, epilog=NET_EXAMPLES)
    _add_net_jobs(parser.add_argument_group("the jobs"))
    group = parser.add_argument_group("who is compared")
    options.add_only(group.add_argument)
    options.add_ringside(group)
    _add_pollings(group)
    options.add_qemu(group)
    options.add_ceiling_and_peers(group, "net_ceiling")
    group.add_argument("--sender", default=str(RELEASE_DIRECTORY / "benchmarks" / "net_sender"),
                       metavar="PATH", help="who sends the frames in")
    options.add_running(parser.add_argument_group("how"), minutes=5, on_disk=False)
    return options.finish(parser, arguments)


def _add_net_jobs(group):
    add = group.add_argument
    add("--kinds", type=option_types.words_of(tuple(net.KINDS)), default=tuple(net.KINDS), metavar="NAME,...",
        help=f"of {', '.join(net.KINDS)} (default: all)")
    add("--frames", type=option_types.frames, default=(64, 1500), metavar="BYTES,...",
        help="of a frame, Ethernet's header included (default: 64,1500)")
    add("--depths", type=option_types.numbers, default=(1, 32), metavar="N,...",
        help="echoes under way (default: 1,32)")
    add("--in-rates", type=option_types.poll_limits, default=(0,), metavar="N,...",
        help="frames in a second, 0 for as many as the tap takes (default: 0)")
    options.add_wait(group)


def parse_vsock(arguments):
    parser = options.Parser(prog="tools/compare vsock", usage="tools/compare vsock [options]",
                            description=VSOCK_DESCRIPTION, epilog=VSOCK_EXAMPLES)
    _add_vsock_jobs(parser.add_argument_group("the jobs"))
    group = parser.add_argument_group("who is compared")
    options.add_only(group.add_argument)
    options.add_ringside(group)
    _add_pollings(group)
    options.add_peers(group, ("firecracker", "cloud-hypervisor"))
    group.add_argument("--client", default=str(RELEASE_DIRECTORY / "benchmarks" / "vsock_client"),
                       metavar="PATH", help="the program of the host")
    options.add_running(parser.add_argument_group("how"), minutes=5, on_disk=False)
    return options.finish(parser, arguments)


def _add_vsock_jobs(group):
    add = group.add_argument
    add("--kinds", type=option_types.words_of(tuple(vsock.KINDS)), default=tuple(vsock.KINDS),
        metavar="NAME,...", help=f"of {', '.join(vsock.KINDS)} (default: all)")
    add("--messages", type=option_types.messages, default=(64, 65536), metavar="BYTES,...",
        help="of a message out (default: 64,65536)")
    add("--echo-messages", type=option_types.messages, default=(64,), metavar="BYTES,...",
        help="of a round trip (default: 64)")
    add("--depths", type=option_types.numbers, default=(1, 16), metavar="N,...",
        help="connections of round trips and of the flood at the same time (default: 1,16)")
    options.add_wait(group)


def _add_pollings(group):
    group.add_argument("--ringside-poll", type=_ways, metavar="NAME,...",
                       default=tuple(map(WAYS.get, ("default", "always", "never"))),
                       help=f"how its I/O thread waits: of {', '.join(WAYS)} (default: "
                            "default,always,never)")


def _ways(text):
    return tuple(map(WAYS.get, option_types.words_of(tuple(WAYS))(text)))
