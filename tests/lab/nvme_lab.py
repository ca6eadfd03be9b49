#!/usr/bin/python3
"""NVMe in the lab: nvme_lab.py GROUP RINGSIDE [WAY].

Runs nvme_linux.sh, and looks at what no one inside can: the images behind the namespaces, and what
QEMU's controller says that it was asked to do.
"""

import hashlib
import os
import re
import subprocess
import sys

from labkit.common import CHECKOUT, LAB_DIRECTORY, find_tool, temporary_directory

SCRIPTS = CHECKOUT / "tests" / "lab"
KERNEL = LAB_DIRECTORY / "kernels" / "6.1" / "bzImage"
MIB = 1 << 20
RECORD_SIZE = 4096

ROOT, RAW, SCRATCH = 1, 2, 3  # Namespaces.

# These have a guest with a root disk and others of these sizes.
SIZES = {"verify": [64 * MIB, 400 * MIB], "assign": [64 * MIB]}
RECORDS_SIZE = 64 * MIB
# Two functions of one device, for an IOMMU group that is not the controller's alone.
PAIR = ("-blockdev null-co,read-zeroes=on,node-name=pair-0 "
        "-blockdev null-co,read-zeroes=on,node-name=pair-1 "
        "-device virtio-blk-pci,drive=pair-0,addr=5.0,multifunction=on "
        "-device virtio-blk-pci,drive=pair-1,addr=5.1")
PROTECTED = ("-blockdev null-co,read-zeroes=on,size=67108864,node-name=protected "
             "-device nvme-ns,bus=lab-nvme,drive=protected,nsid=2,ms=8")
MISUSE = ["--qemu-arg", PAIR, "--file", "/usr/bin/setpriv"]
GROUPS = {**dict.fromkeys(SIZES, []), "kill": [], "misuse": MISUSE,
          "no_iommu": ["--kernel-arg", "intel_iommu=off"],
          "assign_misuse": [*MISUSE, "--qemu-arg", "-device virtio-rng-pci,vectors=0,addr=6.0"],
          "passthrough_misuse": ["--qemu-arg", PROTECTED],
          "passthrough_rights": ["--kernel-version", "6.12", "--file", "/usr/bin/setpriv"]}


class Failures:
    def __init__(self):
        self.count = 0

    def expect(self, is_so, text):
        if not is_so:
            print(f"FAIL: {text}")
            self.count += 1


def run_lab(group, directory, namespaces, arguments):
    """Returns the lab's exit status and what it printed; leaves QEMU's trace in the directory."""
    initrd = LAB_DIRECTORY / ("test-disk-6.1.cpio" if group in SIZES else "test-records.cpio")
    # The kernel's driver has a queue pair for each processor.
    processors = "2" if group == "verify" and "passthrough" in arguments else "1"
    command = [CHECKOUT / "tools" / "lab", "--cpus", processors, "--tries", "3", "--timeout", "600",
               *GROUPS[group],
               "--qemu-arg", f"-trace pci_nvme_* -D {directory / 'trace'}",
               *(word for name in namespaces for word in ("--nvme", name)),
               *(word for name in ("common.sh", "nvme.sh") for word in ("--file", SCRIPTS / name)),
               "--", "sh", SCRIPTS / "nvme_linux.sh", group, arguments[0], KERNEL, initrd,
               *arguments[1:]]
    output = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as lab:
        for line in lab.stdout:
            print(line, end="", flush=True)
            output.append(line.rstrip())
    return lab.returncode, output


def values(output):
    """What was printed as NAME=VALUE."""
    return dict(line.split("=", 1) for line in output if re.match(r"[a-z_]+=", line))


def checksum(data):
    return hashlib.sha256(data).hexdigest()


def check_filesystem(image, failures):
    check = subprocess.run([find_tool("e2fsck", "e2fsprogs"), "-fn", image], capture_output=True,
                           text=True, check=False)
    failures.expect(check.returncode == 0, f"e2fsck of {image.name}: {check.stdout}")


def read_root_file(image, path):
    return subprocess.run([find_tool("debugfs", "e2fsprogs"), "-R", f"cat {path}", image],
                          capture_output=True, check=True).stdout


def count_commands(trace):
    """Returns how many I/O commands of each kind came for each namespace, by queue pair:
    {(opname, namespace): {queue pair: n}}."""
    counts = {}
    pattern = re.compile(r"pci_nvme_io_cmd .* nsid (\w+) sqid (\d+) .* opname 'NVME_NVM_CMD_(\w+)'")
    for line in trace.read_text().splitlines():
        if match := pattern.search(line):
            namespace, queue_pair, name = match.groups()
            by_queue_pair = counts.setdefault((name, int(namespace, 16)), {})
            by_queue_pair[queue_pair] = by_queue_pair.get(queue_pair, 0) + 1
    return counts


def check_verify(root, raw, said, commands, pauses, failures):
    """`pauses`: whether the program has paused the machine, and made its devices anew."""
    if pauses:
        paused = int(said.get("pauses", 0))
        restored = int(said.get("restores", 0))
        print(f"paused {paused} times, devices made anew {restored} times")
        failures.expect(paused >= 20, f"the machine was paused {paused} times, expected 20 to 100")
        failures.expect(restored >= 5, f"devices were made anew {restored} times, expected half of that")
    for job, kib in (("file", 2048), ("raw", 4096), ("deep", 8192)):
        failures.expect(said.get(f"fio_{job}") == f"0,{kib},{kib}",
                        f"fio's job {job}: error, KiB read, written: {said.get(f'fio_{job}')}")
    check_filesystem(root, failures)
    with open(raw, "rb") as image:
        start = image.read(16 * MIB)
    for name, data in (("file", read_root_file(root, "/data")), ("raw", start[:4 * MIB]),
                       ("deep", start[8 * MIB:])):
        failures.expect(said.get(f"{name}_sum") == checksum(data),
                        f"{name}: not what the guest wrote is in the image")
    # L1's kernel only reads.
    writes = commands.get(("WRITE", RAW), {})
    # Those of devices that were made anew may have other numbers.
    busy = sum(count > 50 for count in writes.values())
    failures.expect(busy >= 2 if pauses else busy == 2,
                    f"of two queue pairs these had writes of the raw disk: {writes}")
    failures.expect(("FLUSH", ROOT) in commands, "no flush came to the controller")


def check_features(scratch, said, commands, failures):
    check_filesystem(scratch, failures)
    # The guest wrote 36 MiB and the log of XFS; what is left is ext4's own.
    allocated = os.stat(scratch).st_blocks * 512 // MIB
    failures.expect(allocated < 24, f"{allocated} MiB of the scratch disk are allocated after discard")
    failures.expect(int(said.get("trimmed", 0)) > 200 * MIB, f"fstrim: {said.get('trimmed')} bytes")
    for wanted in ("FLUSH", "DSM", "WRITE_ZEROES"):
        failures.expect((wanted, SCRATCH) in commands, f"no {wanted} came to the controller")


def check_kill(image, said, failures):
    number = int(said.get("flushed", 0))
    failures.expect(number >= 10, f"the guests flushed {number} records")
    with open(image, "rb") as records:
        for record in range(number):
            expected = f"record {record}".ljust(RECORD_SIZE - 1).encode() + b"\n"
            failures.expect(records.read(RECORD_SIZE) == expected,
                            f"record {record} was flushed and is not in the image")


def test(group, directory, arguments):
    failures = Failures()
    first = directory / "first.img"
    others = []
    if group in SIZES:
        subprocess.run(["cp", "--sparse=always", LAB_DIRECTORY / "test-disk.img", first], check=True)
        for number, size in enumerate(SIZES[group]):
            others.append(directory / f"other-{number}.img")
            others[-1].touch()
            os.truncate(others[-1], size)
    else:
        first.touch()
        os.truncate(first, RECORDS_SIZE)
    namespaces = [first, *(f"{other}:4096" for other in others)]
    status, output = run_lab(group, directory, namespaces, arguments)
    if status != 0:
        return status
    said = values(output)
    if group in SIZES:
        commands = count_commands(directory / "trace")
        for (name, namespace), counts in sorted(commands.items()):
            print(f"at the controller: {name} of namespace {namespace}, by queue pair: {counts}")
        check_verify(first, others[0], said, commands, "pausing" in arguments[0], failures)
    if group == "verify":
        check_features(others[1], said, commands, failures)
    if group == "assign":
        failures.expect(said.get("nvme_queues") == "2",
                        f"interrupts came of {said.get('nvme_queues')} queues")
    if group == "kill":
        check_kill(first, said, failures)
    return 1 if failures.count else 0


def main():
    group, *arguments = sys.argv[1:]
    with temporary_directory(LAB_DIRECTORY / "nvme") as directory:
        return test(group, directory, arguments)


if __name__ == "__main__":
    sys.exit(main())
