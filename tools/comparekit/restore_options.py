"""The command line of tools/compare restore."""

from . import option_types, options
from .common import RELEASE_DIRECTORY
from .restore import CACHES

DESCRIPTION = """\
Compares restores: how long it takes until the guest of a saved machine says its first byte again. Bare,
which is the least that KVM takes, in a program without a machine; the library in the same process, of the
directory and of a template that has been read before; the command from its start; and Firecracker, from its
start to its answer over its socket, with a snapshot of its own of the same guest. For each size of memory,
with the snapshot in the page cache and without, in interleaved rounds on a quiet machine. Then how long a
machine of 128 MiB stands still to be saved. Prints tables and writes results.json, table.md and a plot to
build/compare/DATE/. Snapshots take as much room as the memory. Without options: some five minutes."""

EXAMPLES = """\
examples:
  tools/compare restore
  tools/compare restore --memory 128M,2G --caches warm --rounds 300
  tools/compare restore --firecracker /opt/bin/firecracker --disk-dir /mnt/nvme
  tools/compare restore --only bare --only 'Ringside library' --saves 0"""


def parse(arguments):
    parser = options.Parser(prog="tools/compare restore", usage="tools/compare restore [options]",
                            description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument_group("what is restored").add_argument
    add("--memory", type=option_types.memory_sizes, default=(128, 1024, 8192), metavar="SIZE,...",
        help="default: 128M,1G,8G")
    add("--caches", type=option_types.words_of(tuple(CACHES)), default=tuple(CACHES), metavar="NAME,...",
        help=f"of {', '.join(CACHES)} (default: all)")
    add("--disk-dir", default="/var/tmp", metavar="DIR", help="of snapshots (default: /var/tmp)")
    add("--saves", type=option_types.number, default=20, metavar="N",
        help="how often a machine is saved (default: 20)")
    group = parser.add_argument_group("who is compared")
    options.add_only(group.add_argument)
    options.add_ringside(group)
    options.add_peers(group, ("firecracker",))
    group.add_argument("--program", default=str(RELEASE_DIRECTORY / "benchmarks" / "restore_times"),
                       metavar="PATH", help="who restores in one process")
    options.add_rounds(parser.add_argument_group("how"), rounds=100)
    return options.finish(parser, arguments)
