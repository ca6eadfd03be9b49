"""The command line."""

import argparse
from pathlib import Path

from . import lab_jobs, option_types
from .common import BadInput, RELEASE_DIRECTORY
from .iothread import POLLING, QEMU_POLL_MAX_NS, SIGNALLING
from .lab_net import LOADS
from .schedule import ARRIVALS

DESCRIPTION = """\
Runs the same bare-metal guest, file and jobs under Ringside and under every other VMM found here,
in interleaved rounds, each run on a quiet machine; beside them what the host does without a guest
(fio) and what it allows one (the ceiling). Prints a table and writes results.json, table.md and
plots to build/compare/DATE/. Without options: some five minutes.

  tools/compare report results.json [--out DIR]   draws table and plots again, from a file
  tools/compare sweep [options]                   how long to poll: limits from 0 to 128 us
  tools/compare front [options]                   latency against processor time, by policy
  tools/compare lab [options]                     stock Linux and fio under Ringside and QEMU
  tools/compare net [options]                     networks: round trips, frames out and in
  tools/compare vsock [options]                   vsocks: round trips, streams out, connections
  tools/compare restore [options]                 saved machines: from a start to the guest's first byte
  tools/compare lab-net [options]                 stock Linux and iperf3 under Ringside and QEMU

exit status: 0; 1 if anything failed, nothing was measured or the machine was not quiet (what was
measured is written all the same, and marked); 2 for bad options."""

SWEEP_DESCRIPTION = """\
Sweeps the limit of the I/O thread's polling: the same guest, file and jobs under Ringside, by each
policy that has a limit, and under QEMU (poll-max-ns), in interleaved rounds, each run on a quiet
machine. Prints tables and writes results.json, table.md and plots to build/compare/DATE/: I/Os a
second against the limit, and what the I/O thread costs. With --rates also the open loop: latency
against the limit where requests come at random. Without options: some ten minutes."""

FRONT_DESCRIPTION = """\
Draws what latency a polling policy buys for what processor time: the same guest, file and jobs
under Ringside, with the limit of poll=fixed swept (the front) and with each other policy beside it,
and under QEMU, polling by default and not. One request in flight, and requests that come at --rates
a second, at random (Poisson) and evenly; on a file and on a null backend with a service time. In
interleaved rounds, each run on a quiet machine. Prints how far poll=cost is from the front, and
writes results.json, table.md and plots to build/compare/DATE/. Without options: some ten minutes;
more rounds, with --minutes for them, tell 5% more surely."""

LAB_DESCRIPTION = """\
Runs the same stock kernel, disk and fio jobs under Ringside and under QEMU with an IOThread, in turns,
each round in one run of the lab (see tools/lab). Needs no /dev/kvm. Time there is emulated: rows compare with
each other, and with nothing else. Writes what tools/compare writes. Without options: some five
minutes."""

LAB_NET_DESCRIPTION = """\
Runs the same stock kernel and iperf3 on a tap under Ringside and under QEMU, each by itself and through
vhost-net, in turns, each round in one run of the lab (see tools/lab). Needs no /dev/kvm. Time there is emulated:
rows compare with each other, and with nothing else. Writes what tools/compare writes. Without options:
some ten minutes."""

EXAMPLES = """\
examples:
  tools/compare
  tools/compare --targets tmpfs --depths 1,32 --rounds 5 --only Ringside --only 'QEMU*native*'
  tools/compare --ringside-poll grow-shrink --qemu-poll 32768
  tools/compare --qemu /usr/bin/qemu-system-x86_64 --qemu lab --firecracker /opt/bin/firecracker
  tools/compare --targets disk --rates 1000,10000,50%,90% --rounds 5
  tools/compare lab --nvme --depths 1,32
  tools/compare lab --kernel 6.12 --jobs plain,think=500us,mixed --ringside-signal batched \\
      --skip QEMU"""

RW = ("randread", "randwrite", "randrw", "read", "write", "rw")
TARGETS = ("disk", "tmpfs", "null")
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
POLL_LIMITS_US = (0, 1, 2, 4, 8, 16, 32, 64, 128)
FRONT_RATES = ("1000", "10000", "50000")
FRONT_TARGETS = ("disk", "null")
FRONT_SERVICE_US = 20
LIMITED_POLLING = ("fixed", "grow-shrink")
QEMU_AIO = ("io_uring", "native")
KERNELS = ("6.1", "6.12")  # As in labkit.kernels.


class Parser(argparse.ArgumentParser):
    def __init__(self, **words):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **words)

    def error(self, message):
        raise BadInput(f"{message} (see {self.prog} --help)")


def parse(arguments):
    parser = Parser(prog="tools/compare", usage="tools/compare [options]", description=DESCRIPTION,
                    epilog=EXAMPLES)
    _add_jobs(parser.add_argument_group("the jobs"), DEPTHS)
    _add_contestants(parser.add_argument_group("who and what is compared"))
    add_running(parser.add_argument_group("how"), minutes=5)
    return finish(parser, arguments)


def parse_sweep(arguments):
    parser = Parser(prog="tools/compare sweep", usage="tools/compare sweep [options]",
                    description=SWEEP_DESCRIPTION)
    _add_jobs(parser.add_argument_group("the jobs"), depths=(1,))
    group = parser.add_argument_group("who and what is swept")
    group.add_argument("--limits", type=option_types.poll_limits, default=POLL_LIMITS_US, metavar="US,...",
                       help="default: 0,1,2,4,...,128")
    group.add_argument("--ringside-poll", type=_limited_pollings, default=LIMITED_POLLING,
                       metavar="NAME,...", help="of fixed, grow-shrink (default: both)")
    _add_qemu_aio(group)
    _add_choice(group)
    add_running(parser.add_argument_group("how"), minutes=10)
    return finish(parser, arguments)


def parse_front(arguments):
    parser = Parser(prog="tools/compare front", usage="tools/compare front [options]",
                    description=FRONT_DESCRIPTION)
    _add_jobs(parser.add_argument_group("the jobs"), depths=(1,), rates=FRONT_RATES)
    group = parser.add_argument_group("who and what is compared")
    group.add_argument("--limits", type=option_types.numbers, default=POLL_LIMITS_US[1:], metavar="US,...",
                       help="of poll=fixed; poll=never is the front's 0 (default: 1,2,4,...,128)")
    group.add_argument("--price", type=option_types.prices, default=("1",), metavar="N,...",
                       help="of poll=cost (default: 1)")
    _add_qemu_aio(group)
    _add_choice(group, FRONT_TARGETS, FRONT_SERVICE_US)
    add_running(parser.add_argument_group("how"), minutes=10, rounds=2)
    options = finish(parser, arguments, open_loops=tuple(ARRIVALS))
    if len(options.ringside_aio) != 1:
        raise BadInput("--ringside-aio: a front is that of one engine; give one")
    return options


def finish(parser, arguments, open_loops=("open",)):
    """`open_loops`: those that --rates asks for, as in schedule.ARRIVALS."""
    options = parser.parse_args(arguments)
    options.only, options.skip = options.only or [], options.skip or []
    options.thinking = vars(options).get("thinking") or []
    options.open_loops = open_loops
    options.command = f"{parser.prog} " + " ".join(arguments)
    return options


def parse_report(arguments):
    parser = Parser(prog="tools/compare report")
    parser.add_argument("results", type=Path, metavar="results.json")
    parser.add_argument("--out", type=Path, metavar="DIR",
                        help="where to write (default: beside results.json)")
    return parser.parse_args(arguments)


def parse_lab(arguments):
    parser = Parser(prog="tools/compare lab", description=LAB_DESCRIPTION)
    _add_lab_load(parser)
    add = parser.add_argument
    _add_lab_guest(add, runtime_ms=3000)
    add("--nvme", action="store_true",
        help="the disk is a namespace of the lab's NVMe controller instead of a file: Ringside and "
             "QEMU drive it themselves (nvme://), use L1's driver with io_uring (Ringside by "
             "passthrough too), and give the guest the controller whole (--vfio)")
    add_only(add)
    add_ringside(parser)
    _add_signal(parser)
    add("--qemu-aio", type=_qemu_engines, default=QEMU_AIO[:1], metavar="NAME,...",
        help="of io_uring, native (default: io_uring)")
    add_rounds(parser)
    options = finish(parser, arguments)
    if options.nvme and "two-cpus" in options.jobs:
        raise BadInput("--jobs two-cpus: not with --nvme, where a guest that has the controller whole has "
                       "a queue for each vCPU")
    if "two-cpus" in options.jobs and not any(depth % 2 == 0 for depth in options.depths):
        raise BadInput("--jobs two-cpus: needs an even number in --depths, to give each vCPU half")
    return options


def parse_lab_net(arguments):
    parser = Parser(prog="tools/compare lab-net", description=LAB_NET_DESCRIPTION)
    add = parser.add_argument
    add("--loads", type=option_types.words_of(tuple(LOADS)), default=tuple(LOADS), metavar="NAME,...",
        help=f"of {', '.join(LOADS)} (default: all)")
    add("--pairs", type=option_types.numbers, default=(1, 2), metavar="N,...",
        help="of queues, of a guest with as many vCPUs (default: 1,2)")
    add("--connections", type=option_types.numbers, default=(1, 64), metavar="N,...",
        help="of TCP at the same time (default: 1,64)")
    _add_lab_guest(add, runtime_ms=2000)
    add_only(add)
    add_ringside(parser)
    add_rounds(parser)
    options = finish(parser, arguments)
    if options.runtime % 1000:
        raise BadInput("--runtime: iperf3 takes whole seconds")
    return options


def _add_lab_guest(add, runtime_ms):
    add("--kernel", choices=KERNELS, default=KERNELS[0], help=f"of the guests (default: {KERNELS[0]})")
    add("--runtime", type=option_types.milliseconds, default=runtime_ms, metavar="TIME",
        help=f"of one job, like 1s or 500ms (default: {runtime_ms // 1000}s)")


def _add_lab_load(parser):
    _add_load(parser)
    add = parser.add_argument
    add("--depths", type=option_types.numbers, default=(1, 4, 16, 32), metavar="N,...", help="default: 1,4,16,32")
    add("--jobs", type=_lab_jobs, default=("plain",), metavar="NAME,...",
        help="what fio does, each at --depths: plain; think=TIME, like think=500us: bursts of as many "
             "requests as the depth, with that time between them; two-cpus: a guest with 2 vCPUs and one "
             "queue, half of the requests from each. At depths of their own: mixed, a job of depth 1 and "
             "one of depth 32 at the same time; seed-001, four jobs that write 4 KiB at depth 16, in a "
             "guest with 4 vCPUs, 4 queues and mq-deadline (default: plain)")


def _add_load(group):
    add = group.add_argument
    add("--rw", choices=RW, default="randread", help="default: randread")
    add("--rwmix", type=int, default=70, metavar="PERCENT",
        help="reads of randrw and rw (default: 70)")
    add("--bs", type=option_types.block_size, default="4k", metavar="SIZE", help="default: 4k")


def _add_jobs(group, depths, rates=()):
    _add_load(group)
    add = group.add_argument
    add("--depths", type=option_types.numbers, default=depths, metavar="N,...",
        help="requests in flight (default: " + ",".join(map(str, depths)) + ")")
    add_wait(group)
    add("--rates", type=option_types.rates, default=rates, metavar="RATE,...",
        help=f"then also the open loop: so many arrivals a second, or percents of the best closed "
             f"loop (default: {','.join(rates) or 'none'})")
    _add_thinking(group)


def add_wait(group):
    group.add_argument("--wait", choices=("poll", "irq"), default="poll",
                       help="how the guest learns of completions (default: poll)")


def _add_thinking(group):
    """Options of the closed loop, as the words that the guest knows (tests/guest/job.h)."""
    one = group.add_mutually_exclusive_group()
    one.add_argument("--think", action="append", type=lambda text: f"think={option_types.think_time(text)}",
                     dest="thinking", metavar="TIME",
                     help="from a completion's being seen to the next request in its place, like 20us, as of "
                          "so many users who think. With --wait irq the guest looks at the ring after "
                          "interrupts only and asks for the next at once, as Linux does, also with 0us")
    one.add_argument("--think-serial", action="append", dest="thinking", metavar="TIME",
                     type=lambda text: f"think-serial={option_types.think_time(text)}",
                     help="the guest works for so long on each completion, one after the other")
    group.add_argument("--depth1", action="append_const", const="depth1=1", dest="thinking",
                       help="a second job with one request in flight on the same queue, which goes "
                            "first; it is reported apart")


def _add_qemu_aio(group):
    group.add_argument("--qemu-aio", type=_qemu_engines, default=QEMU_AIO, metavar="NAME,...",
                       help="of io_uring, native (default: both; null-co goes with io_uring)")


def _add_choice(group, targets=TARGETS, null_latency_us=0):
    add = group.add_argument
    add("--targets", type=_targets, default=targets, metavar="NAME,...",
        help=f"of disk, tmpfs, null (default: {','.join(targets)})")
    add("--null-latency", type=option_types.microseconds, default=null_latency_us, metavar="TIME",
        dest="null_latency_us", help="what target null takes for each request, like 20us "
                                     f"(default: {null_latency_us}us)")
    add_only(add)
    add_ringside(group)
    add("--ringside-aio", type=_engines, default=("auto",), metavar="NAME,...",
        help="of auto, io_uring, native, threads (default: auto)")
    add_qemu(group)


def add_qemu(group):
    group.add_argument("--qemu", action="append", metavar="PATH",
                       help="instead of the one in PATH (repeatable); lab: the one that tools/lab uses")


def add_only(add):
    add("--only", action="append", metavar="NAME",
        help="these contestants: the beginning of a name, or a pattern (repeatable)")
    add("--skip", action="append", metavar="NAME", help="not these (repeatable)")


def _add_contestants(group):
    _add_choice(group)
    add = group.add_argument
    add("--ringside-poll", type=_pollings, default=tuple(POLLING), metavar="NAME,...",
        help="how its I/O thread waits: of never, grow-shrink (32 us at most), cost, always "
             "(default: all)")
    _add_signal(group)
    add("--qemu-poll", type=option_types.poll_limits, default=(0, QEMU_POLL_MAX_NS), metavar="NS,...",
        help="poll-max-ns of its IOThread (default: 0,%d)" % QEMU_POLL_MAX_NS)
    add_ceiling_and_peers(group, "ceiling")


def add_ceiling_and_peers(group, ceiling):
    add = group.add_argument
    add("--ceiling", default=str(RELEASE_DIRECTORY / "benchmarks" / ceiling), metavar="PATH")
    add_peers(group, ("firecracker", "cloud-hypervisor", "crosvm"))


def add_peers(group, names):
    for name in names:
        group.add_argument(f"--{name}", metavar="PATH")


def add_ringside(group):
    group.add_argument("--ringside", default=str(RELEASE_DIRECTORY / "ringside"), metavar="PATH")


def _add_signal(group):
    group.add_argument("--ringside-signal", type=_signallings, default=(), metavar="NAME,...",
                       help=f"also Ringside that polls by default and signals so: of "
                            f"{', '.join(SIGNALLING)} (default: none)")


def add_running(group, minutes, rounds=3, on_disk=True):
    add = group.add_argument
    add("--runtime", type=option_types.milliseconds, metavar="TIME",
        help="of one job, like 1s or 500ms (default: what --minutes leaves)")
    add("--minutes", type=float, default=minutes, metavar="N",
        help="for the whole (default: %(default)s)")
    if on_disk:
        add("--disk-dir", default="/var/tmp", metavar="DIR",
            help="of target disk (default: /var/tmp)")
    add("--keep-apart", type=option_types.two_processors, metavar="VCPU:OTHERS",
        help="processors, like 0:1, for a VMM's vCPU and for all its other threads; best for the "
             "others is the one that the disk interrupts (/proc/interrupts) (default: any)")
    add_rounds(group, rounds)


def add_rounds(group, rounds=3):
    add = group.add_argument
    add("--rounds", type=option_types.positive, default=rounds, metavar="N", help="default: %(default)s")
    add("--accept-noise", action="store_true", help="measure on a machine that others use")
    add("--noise-limit", type=float, default=5, metavar="PERCENT",
        help="of the machine's processors that others may use (default: 5)")
    add("--out", type=Path, metavar="DIR", help="default: build/compare/DATE")
    add("--json", action="store_true", help="print results.json instead of the table")


def _lab_jobs(text):
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if not lab_jobs.is_name(name):
            raise argparse.ArgumentTypeError(f"'{name}' is none of {lab_jobs.NAMES}")
    return names


_targets = option_types.words_of(TARGETS)
_pollings = option_types.words_of(tuple(POLLING))
_limited_pollings = option_types.words_of(LIMITED_POLLING)
_qemu_engines = option_types.words_of(QEMU_AIO)
_signallings = option_types.words_of(SIGNALLING)
_engines = option_types.words_of(("auto", "io_uring", "native", "threads"))
