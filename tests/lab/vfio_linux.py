#!/usr/bin/python3
"""Runs inside the lab: NVMe devices given to vfio-pci by tools/nvme-bind and back, what it refuses,
what the doctor says, and kernel VFIO itself (vfio_lab_test).

    vfio_linux.py iommu|no-iommu RINGSIDE NVME_BIND VFIO_LAB_TEST

Devices: slot 10 has one alone, slot 11 a card with two in one IOMMU group; all with the kernel's
driver. To import nvme-bind once saves seconds here for each time that it runs.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import subprocess
import sys

ALONE, FIRST, SECOND = "0000:00:10.0", "0000:00:11.0", "0000:00:11.1"
DISK = "/dev/nvme0n1"  # of ALONE

RINGSIDE, NVME_BIND, VFIO_LAB_TEST = sys.argv[2:]
failures = []


def load(path):
    loader = importlib.machinery.SourceFileLoader("nvme_bind", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("nvme_bind", loader))
    loader.exec_module(module)
    return module


def check(good, message):
    if not good:
        print(f"FAIL: {message}")
        failures.append(message)


def drivers():
    return [nvme_bind.Device(host, address).driver() for address in (ALONE, FIRST, SECOND)]


def bind(*arguments):
    """Returns the exit status and all output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        sys.argv[1:] = arguments
        status = nvme_bind.main()
    print(f"nvme-bind {' '.join(arguments)}: {output.getvalue()}", end="")
    return status, output.getvalue()


def refused(text, *arguments):
    before = drivers()
    status, output = bind(*arguments)
    check(status == 2 and text in output and output.count("\n") == 1,
          f"nvme-bind {arguments}: no refusal in one line with '{text}'")
    check(drivers() == before, f"nvme-bind {arguments} changed {before} to {drivers()}")


def given(*arguments):
    check(bind(*arguments)[0] == 0, f"nvme-bind {arguments} failed")


def have(*expected):
    check(drivers() == list(expected), f"drivers are {drivers()}, not {expected}")


def doctor_says(*texts):
    done = subprocess.run([RINGSIDE, "doctor"], capture_output=True, text=True, check=False)
    for text in texts:
        check(text in done.stdout, f"the doctor does not say '{text}':\n{done.stdout}")


def lab_test(choice, **environment):
    variables = {f"RINGSIDE_VFIO_{name.upper()}": value for name, value in environment.items()}
    sys.stdout.flush()
    status = subprocess.run([VFIO_LAB_TEST, f"--gtest_filter={choice}", "--gtest_brief=1"],
                            env={**os.environ, **variables}, check=False).returncode
    check(status == 0, f"vfio_lab_test ended with {status}")


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def uses_are_refused():
    run("mke2fs", "-q", "-F", DISK)
    os.makedirs("/mnt/a b", exist_ok=True)
    run("mount", DISK, "/mnt/a b")
    refused("in use: nvme0n1 is mounted on /mnt/a b", ALONE)
    run("umount", "/mnt/a b")
    run("mkswap", DISK)
    run("swapon", DISK)
    refused("in use: nvme0n1 is swap space", ALONE)
    run("swapoff", DISK)
    exclusive = os.open(DISK, os.O_RDONLY | os.O_EXCL)
    refused("in use: nvme0n1 is in exclusive use", ALONE)
    os.close(exclusive)
    with subprocess.Popen(["sleep", "60"], stdin=open(DISK, "rb")) as sleeper:
        refused(f"process {sleeper.pid} (sleep) has {DISK} open", ALONE)
        sleeper.kill()


def with_iommu():
    have("nvme", "nvme", "nvme")
    doctor_says(f"{ALONE} QEMU NVMe Ctrl (driver nvme, IOMMU group ",
                f"nvme://{ALONE}/1 cannot be used: PCI device '{ALONE}' has the driver 'nvme'; give "
                f"it to vfio-pci with 'tools/nvme-bind {ALONE}'")
    uses_are_refused()
    refused(f"'{SECOND}' (driver nvme)", FIRST)
    refused("is no NVMe controller", "0000:00:00.0")

    given(ALONE)
    given(ALONE)
    have("vfio-pci", "nvme", "nvme")
    doctor_says(f"nvme://{ALONE}/1 can be used", f"--vfio {ALONE} can be used")

    # Half a card, which nvme-bind refuses.
    nvme_bind.move(nvme_bind.Device(host, FIRST), "vfio-pci", "vfio-pci")
    lab_test("-*WithoutIommu*", address=ALONE, other_driver=SECOND, shared_group=FIRST)
    given("--back", FIRST)

    given(FIRST, SECOND)
    have("vfio-pci", "vfio-pci", "vfio-pci")
    doctor_says(f"nvme://{SECOND}/1 can be used")
    group = os.open(f"/dev/vfio/{nvme_bind.Device(host, ALONE).group()}", os.O_RDWR)
    refused("open", "--back", ALONE)
    os.close(group)
    given("--back", FIRST, SECOND, ALONE)
    have("nvme", "nvme", "nvme")
    check(bind("--list")[1].count("no use seen") == 3, "not all are listed as free")


def without_iommu():
    refused("is behind no IOMMU", ALONE)
    doctor_says(f"nvme://{ALONE}/1 cannot be used: PCI device '{ALONE}' is behind no IOMMU",
                "intel_iommu=on")
    lab_test("*WithoutIommu*", address=ALONE)
    # vfio-pci refuses such a device: a real failure in the middle.
    try:
        nvme_bind.move(nvme_bind.Device(host, ALONE), "vfio-pci", "vfio-pci")
        check(False, "vfio-pci took a device without an IOMMU")
    except nvme_bind.BindError as error:
        check("put back as it was" in str(error), f"not put back: {error}")
    have("nvme", "nvme", "nvme")
    check(nvme_bind.Device(host, ALONE).override() == "", "driver_override was left")


nvme_bind = load(NVME_BIND)
host = nvme_bind.Host()
{"iommu": with_iommu, "no-iommu": without_iommu}[sys.argv[1]]()
print("all as it should be" if not failures else f"{len(failures)} failures")
sys.exit(bool(failures))
