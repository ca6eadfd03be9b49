"""Stock Linux side by side: the same kernel, disks and fio jobs under Ringside and under QEMU with an
IOThread, each round in one run of the lab.

Time in the lab is emulated time: the rows compare with each other, and with nothing outside.
tests/lab/compare.sh does the run; this prepares what it needs, and lab_results.py checks what it leaves
and returns it in the layout of results.json (summary.py), with one key more in a job: exits_per_io,
which KVM counts.
"""

import os
import re
import subprocess
import tarfile

from labkit.common import CHECKOUT, LAB_DIRECTORY, LabError, temporary_directory
from labkit.kernels import get_kernel

from . import cpu, lab_jobs, lab_results
from .common import MeasureError
from .lab_jobs import guests_of
from .lab_machines import DATA, SCRIPTS, machines_of

LAB = CHECKOUT / "tools" / "lab"
DATA_MIB = 128
GUESTS = "guests"  # a line for each guest of a round
# Of the guests; built in or modules, as their kernel has them.
MODULES = ("virtio_pci", "virtio_blk", "nvme", "mq_deadline")

# A guest is up and down in 15 s, a job's overhead is 2 s; four times that on a loaded machine.
GUEST_S, JOB_S, LOAD_FACTOR = 15, 2, 4


def run(options, progress):
    """Measures, and returns the results. `options` are those of options.parse_lab(). Raises
    MeasureError with the reason if the lab fails or if what it measured is not worth a table."""
    loads = [lab_jobs.load(name, options.depths) for name in options.jobs]
    try:
        machines = machines_of(options)
        with temporary_directory(LAB_DIRECTORY / "compare") as directory:
            prepare(directory, options, loads)
            others = run_lab(directory, options, machines, loads, progress)
            with tarfile.open(directory / "results.tar") as archive:
                return lab_results.read(archive, options, machines, loads, others)
    except LabError as error:
        raise MeasureError(str(error)) from error


def prepare(directory, options, loads):
    """Writes the disk that is measured, the guests' initrd and their root disk."""
    write_data(directory / "data.img")
    job_files = []
    for guest, its_loads in guests_of(loads).items():
        path = directory / f"{guest.name}.fio"
        path.write_text(lab_jobs.job_file(its_loads, options))
        job_files += ["--file", f"{path}:/{path.name}"]
    for arguments in (
            ["--download"],
            ["--guest-initrd", directory / "initrd", "--kernel-version", options.kernel,
             *(word for name in MODULES for word in ("--module", name))],
            ["--guest-disk", directory / "root.img", "--autorun", SCRIPTS / "compare_guest.sh",
             "--file", "/usr/bin/fio", *job_files]):
        result = subprocess.run([LAB, *arguments], stdout=subprocess.DEVNULL, check=False)
        if result.returncode != 0:
            raise MeasureError(f"tools/lab {arguments[0]} ended with status {result.returncode}")


def write_data(path):
    """Returns the path. What copies it into the lab makes holes of zeroes, and who writes first would pay
    for their blocks."""
    with open(path, "wb") as data:
        for _ in range(DATA_MIB):
            data.write(os.urandom(1 << 20))
    return path


def guest_lines(machines, loads):
    """The guests of a round, a line each, as compare.sh reads them."""
    for guest, its_loads in guests_of(loads).items():
        jobs = ",".join(job.name for load in its_loads for job in load.jobs)
        for machine in machines:
            yield (f"{guest.name}/{machine.name} {guest.cpus} {guest.scheduler} /{guest.name}.fio {jobs} "
                   f"{machine.driver} {machine.option} {machine.disk_for(guest)} {machine.command}\n")


def run_lab(directory, options, machines, loads, progress):
    """Leaves results.tar in the directory; returns what run_rounds() does."""
    groups = [list(guest_lines(machines, its_loads)) for its_loads in guests_of(loads).values()]
    guests = sum(map(len, groups))
    jobs = len(machines) * sum(len(load.jobs) for load in loads)
    runtime_s = options.runtime / 1000
    limit_s = (guests * GUEST_S + jobs * (runtime_s + JOB_S)) * LOAD_FACTOR
    data = directory / "data.img"
    files = (SCRIPTS / "common.sh", SCRIPTS / "nvme.sh", SCRIPTS / "qemu.sh", options.ringside,
             "/usr/sbin/debugfs", *([] if options.nvme else [f"{data}:{DATA}"]))

    # tsc=reliable: L1 and its guests then read the clock in user mode, as on real hardware. Linux does
    # not trust the emulator's TSC and would take the HPET, a system call and an exit each time.
    # Two processors: polling takes one for itself. Guests that the emulator then crashes are repeated.
    def command(number, results):
        return [LAB, "--peer-qemu", "--cpus", "2", "--tries", "3", "--timeout", f"{limit_s:.0f}",
                "--kernel-arg", "tsc=reliable", "--get", results,
                *(("--nvme", data) if options.nvme else ()),
                *(word for name in files for word in ("--file", name)), "--",
                "sh", SCRIPTS / "compare.sh", directory / GUESTS, get_kernel(options.kernel).bzimage,
                directory / "initrd", directory / "root.img", str(number), f"{runtime_s:g}", results]

    return run_rounds(directory, options.rounds, command, groups, progress)


def run_rounds(directory, rounds, command, groups, progress):
    """Runs a script in the lab once for each round: `command` makes its words of the round's number and
    of the archive that it leaves; the file GUESTS in the directory then has a line for each guest. Those
    of a group compare with each other, and are as turned() has them. Leaves the archives together in
    results.tar in the directory, and returns what follow() does of all of them. A round whose lab crashes
    is told of, and the others count."""
    others, guests = {}, rounds * sum(map(len, groups))
    progress.show("starting the lab")
    with tarfile.open(directory / "results.tar", "w") as together:
        for number in range(1, rounds + 1):
            results = directory / f"round-{number}.tar"
            (directory / GUESTS).write_text("".join(line for lines in groups
                                                    for line in turned(lines, number)))
            try:
                others |= run_script(command(number, results), guests, progress)
            except MeasureError as error:
                progress.note(f"round {number} is lost: {error}")
                continue
            with tarfile.open(results) as archive:
                for member in archive:
                    together.addfile(member, archive.extractfile(member) if member.isfile() else None)
            results.unlink()
    return others


def turned(lines, number):
    """Those of a group in a round: each begins with another one, lest one always comes first."""
    first = (number - 1) % len(lines)
    return lines[first:] + lines[:first]


def run_script(command, guests, progress):
    """Runs a script in the lab that says of each of its guests when it is done; there are so many of all
    rounds. Returns what follow() does."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as lab:
        try:
            others = follow(map(str.rstrip, lab.stdout), guests, progress,
                            lambda: cpu.MachineUse(lab.pid))
        except BaseException:  # A signal asked us to end: the lab is to take its files away.
            lab.terminate()
            raise
    if lab.returncode != 0:
        raise MeasureError(f"the lab ended with status {lab.returncode}: the lines above say why")
    return others


def follow(lines, guests, progress, machine_use):
    """Returns the share of the processors that others used meanwhile, by the round and the name of each
    guest, as guest_lines() has it."""
    others, use = {}, machine_use()
    for line in lines:
        done = re.match(r"round (\d+): (\S+)", line)
        if done:
            others[int(done[1]), done[2]] = use.others()
            use = machine_use()
            progress.advance(1 / guests)
            progress.show(line)
        else:
            progress.note(line)  # What went wrong, and what was tried again.
    return others
