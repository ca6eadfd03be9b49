#!/usr/bin/python3
"""What tools/nvme-bind decides, on a tree of files that stands for the kernel's."""

import contextlib
import errno
import importlib.machinery
import importlib.util
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

_PROGRAM = Path(__file__).resolve().parents[2] / "tools" / "nvme-bind"


def load():
    loader = importlib.machinery.SourceFileLoader("nvme_bind", str(_PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("nvme_bind", loader))
    loader.exec_module(module)
    return module


nvme_bind = load()

DEVICE, OTHER = "0000:00:04.0", "0000:00:04.1"
NVME, VFIO = "nvme", "vfio-pci"


class FakeHost(nvme_bind.Host):
    """Does what the kernel does when it is told something; `stubborn` drivers take no device."""

    def __init__(self, root):
        super().__init__(root)
        self.stubborn = set()
        self.loadable = set()
        self.busy = set()
        self.written = []
        for directory in ("sys/bus/pci/devices", "sys/class/block", "proc/self"):
            (self.root / directory).mkdir(parents=True)
        self.put("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
        self.put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n")
        self.add_driver(NVME)
        self.add_driver(VFIO)

    def put(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def add_driver(self, name):
        (self.pci / "drivers" / name).mkdir(parents=True)

    def add_device(self, address, group="3", driver=NVME, pci_class="0x010802"):
        path = self.pci / "devices" / address
        path.mkdir()
        self.put(path / "class", pci_class + "\n")
        self.put(path / "driver_override", "(null)\n")
        if driver:
            (path / "driver").symlink_to(self.pci / "drivers" / driver)
        if group:
            target = self.root / "sys/kernel/iommu_groups" / group / "devices"
            target.mkdir(parents=True, exist_ok=True)
            (target / address).touch()
            (path / "iommu_group").symlink_to(target.parent)

    def add_namespace(self, address, path_name="nvme0n1", name="nvme0n1"):
        (self.pci / "devices" / address / "nvme/nvme0" / path_name).mkdir(parents=True)
        self.add_block(name, "259:0")

    def add_block(self, name, number, disk=None):
        target = self.root / "sys/devices" / (f"{disk}/{name}" if disk else name)
        self.put(target / "dev", number + "\n")
        (target / "holders").mkdir()
        if disk:
            self.put(target / "partition", "1\n")
        (self.root / "sys/class/block" / name).symlink_to(target)

    def add_holder(self, name, holder):
        (self.root / "sys/class/block" / name / "holders" / holder).touch()

    def mount(self, number, where, source):
        path = self.root / "proc/self/mountinfo"
        path.write_text(path.read_text() + f"40 22 {number} / {where} rw shared:1 - fs {source} rw\n")

    def add_open_file(self, pid, name, target):
        self.put(f"proc/{pid}/comm", name + "\n")
        (self.root / f"proc/{pid}/fd").mkdir()
        (self.root / f"proc/{pid}/fd/5").symlink_to(target)

    # What the kernel does.

    def write(self, path, text):
        path = Path(path)
        self.written.append(f"{path.relative_to(self.root)}={text.strip()}")
        if path.name == "driver_override":
            path.write_text(text if text.strip() else "(null)\n")
        elif path.name == "unbind":
            path.parent.unlink()
        elif path.name == "drivers_probe":
            device = nvme_bind.Device(self, text)
            wanted = device.override() or NVME
            if wanted not in self.stubborn and not device.driver():
                (device.path / "driver").symlink_to(self.pci / "drivers" / wanted)

    def load_module(self, name):
        if name not in self.loadable:
            return "modprobe: FATAL: Module vfio-pci not found."
        self.add_driver(name)
        return ""

    def open_error(self, name, flags):
        return errno.EBUSY if name in self.busy else 0


class NvmeBindTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.host = FakeHost(directory.name)

    def run_it(self, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            nvme_bind.run(arguments, self.host)
        return output.getvalue()

    def fails(self, status, *arguments):
        with self.assertRaises(nvme_bind.BindError) as caught:
            self.run_it(*arguments)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def refused(self, text, *arguments):
        self.assertIn(text, self.fails(2, *(arguments or (DEVICE,))))
        self.assertEqual(self.host.written, [])

    def driver(self, address=DEVICE):
        return nvme_bind.Device(self.host, address).driver()

    def override(self, address=DEVICE):
        return nvme_bind.Device(self.host, address).override()


class Giving(NvmeBindTest):
    def test_gives_a_device_and_takes_it_back(self):
        self.host.add_device(DEVICE)
        self.assertIn(f"--disk nvme://{DEVICE}/1", self.run_it(DEVICE))
        self.assertEqual((self.driver(), self.override()), (VFIO, VFIO))
        self.assertIn("is back", self.run_it("--back", DEVICE))
        self.assertEqual((self.driver(), self.override()), (NVME, ""))

    def test_a_device_without_a_driver_is_given_too(self):
        self.host.add_device(DEVICE, driver="")
        self.run_it(DEVICE)
        self.assertEqual(self.driver(), VFIO)

    def test_what_is_done_already_is_not_done_again(self):
        self.host.add_device(DEVICE, driver=VFIO)
        self.assertIn("was given before", self.run_it(DEVICE))
        self.host.add_device(OTHER, group="4")
        self.assertIn("was back before", self.run_it("--back", OTHER))
        self.assertEqual(self.host.written, [])

    def test_the_module_is_loaded_if_need_be(self):
        self.host.add_device(DEVICE)
        (self.host.pci / "drivers" / VFIO).rmdir()
        self.refused("the kernel has no driver vfio-pci: modprobe: FATAL")
        self.host.loadable.add(VFIO)
        self.run_it(DEVICE)
        self.assertEqual(self.driver(), VFIO)

    def test_addresses_are_checked(self):
        self.host.add_device(DEVICE)
        self.host.add_device("0000:00:05.0", pci_class="0x020000")
        self.refused(f"write it as '{DEVICE}'", "00:04.0")
        self.refused("is no PCI address", "nvme0")
        self.refused("there is no PCI device '0000:00:09.0'", "0000:00:09.0")
        self.refused("is no NVMe controller (its class is 0x020000)", "0000:00:05.0")
        self.refused("give addresses, or --list alone", "--list", DEVICE)
        self.refused("give addresses, or --list alone", "--back")

    def test_without_an_iommu_it_is_refused(self):
        self.host.add_device(DEVICE, group="")
        self.refused("intel_iommu=on")
        self.host.add_device(OTHER, group="7")
        self.host.put("sys/kernel/iommu_groups/7/name", "vfio-noiommu\n")
        self.refused("intel_iommu=on", OTHER)

    def test_a_group_with_other_devices_of_the_host_is_refused(self):
        self.host.add_device(DEVICE)
        self.host.add_driver("e1000e")
        self.host.add_device(OTHER, driver="e1000e", pci_class="0x020000")
        self.refused(f"shares IOMMU group 3 with '{OTHER}' (driver e1000e)")

    def test_bridges_and_devices_without_driver_may_share_a_group(self):
        self.host.add_driver("pcieport")
        self.host.add_device("0000:00:01.0", driver="pcieport", pci_class="0x060400")
        self.host.add_device(OTHER, driver="")
        self.host.add_device(DEVICE)
        self.run_it(DEVICE)
        self.assertEqual(self.driver(), VFIO)

    def test_all_of_a_group_go_together(self):
        self.host.add_device(DEVICE)
        self.host.add_device(OTHER)
        self.refused(f"'{OTHER}' (driver nvme)")
        self.run_it(DEVICE, OTHER)
        self.assertEqual((self.driver(), self.driver(OTHER)), (VFIO, VFIO))


class Failing(NvmeBindTest):
    def test_what_vfio_does_not_take_goes_back(self):
        self.host.add_device(DEVICE)
        self.host.stubborn.add(VFIO)
        text = self.fails(1, DEVICE)
        self.assertIn("vfio-pci did not take NVMe device '0000:00:04.0'", text)
        self.assertIn("put back as it was", text)
        self.assertEqual((self.driver(), self.override()), (NVME, ""))

    def test_those_before_the_failure_go_back_too(self):
        self.host.add_device(DEVICE)
        self.host.add_device(OTHER)
        write = self.host.write

        def fail_at_other(path, text):
            if text == OTHER and Path(path).name == "unbind":
                raise nvme_bind.BindError("cannot write", 1)
            write(path, text)

        self.host.write = fail_at_other
        self.assertIn("cannot write (put back as it was)", self.fails(1, DEVICE, OTHER))
        for address in (DEVICE, OTHER):
            self.assertEqual((self.driver(address), self.override(address)), (NVME, ""))

    def test_a_device_that_no_one_takes_back_is_named(self):
        self.host.add_device(DEVICE)
        self.host.stubborn |= {VFIO, NVME}
        self.assertIn("nvme did not take it back: its driver is none now", self.fails(1, DEVICE))

    def test_an_override_of_others_is_restored(self):
        self.host.add_device(DEVICE)
        self.host.put(f"sys/bus/pci/devices/{DEVICE}/driver_override", "nvme\n")
        self.host.stubborn.add(VFIO)
        self.fails(1, DEVICE)
        self.assertEqual(self.override(), "nvme")


class InUse(NvmeBindTest):
    def setUp(self):
        super().setUp()
        self.host.add_device(DEVICE)
        self.host.add_namespace(DEVICE)
        self.host.add_block("nvme0n1p1", "259:1", disk="nvme0n1")

    def test_what_is_not_used_is_given(self):
        self.run_it(DEVICE)
        self.assertEqual(self.driver(), VFIO)

    def test_a_mounted_disk_or_partition(self):
        self.host.mount("259:1", "/srv/a\\040b", "/dev/root")
        self.refused("in use: nvme0n1p1 is mounted on /srv/a b")

    def test_a_file_system_with_numbers_of_its_own(self):
        self.host.mount("0:33", "/srv", "/dev/nvme0n1")
        self.refused("nvme0n1 is mounted on /srv")

    def test_what_is_built_on_a_partition_and_on_that(self):
        self.host.add_block("dm-0", "254:0")
        self.host.add_block("dm-1", "254:1")
        self.host.add_holder("nvme0n1p1", "dm-0")
        self.refused("dm-0 is built on nvme0n1p1")
        self.host.add_holder("dm-0", "dm-1")
        self.host.mount("254:1", "/home", "/dev/mapper/home")
        self.refused("dm-0 is built on nvme0n1p1; dm-1 is built on dm-0; dm-1 is mounted on /home")

    def test_swap(self):
        self.host.put("proc/swaps", "Filename\tType\n/dev/nvme0n1p1\tpartition\t1\t0\t-2\n")
        self.refused("nvme0n1p1 is swap space")

    def test_exclusive_use(self):
        self.host.busy.add("nvme0n1")
        self.refused("nvme0n1 is in exclusive use")

    def test_a_process_that_has_it_open(self):
        for number, name in enumerate(("nvme0n1", "nvme0n1p1", "ng0n1", "nvme0")):
            with self.subTest(name=name):
                self.host.add_open_file(900 + number, "qemu", f"/dev/{name}")
                self.refused(f"process {900 + number} (qemu) has /dev/{name} open")
                os.unlink(self.host.root / f"proc/{900 + number}/fd/5")

    def test_a_process_whose_name_moves_the_cursor(self):
        self.host.add_open_file(900, "a\x1b[2J\nnvme-bind: fine\u202e", "/dev/nvme0n1")
        output = io.StringIO()
        with (contextlib.redirect_stderr(output), mock.patch("sys.argv", ["nvme-bind", DEVICE]),
              mock.patch.object(nvme_bind, "Host", return_value=self.host)):
            self.assertEqual(nvme_bind.main(), nvme_bind.STATUS_REFUSED)
        self.assertIn(r"process 900 (a\x1b[2J\nnvme-bind: fine\u202e) has", output.getvalue())
        self.assertEqual(output.getvalue().count("\n"), 1)

    def test_the_disk_of_a_namespace_with_several_paths(self):
        self.host.add_device(OTHER, group="4")
        self.host.add_namespace(OTHER, path_name="nvme1c1n1", name="nvme1n1")
        self.host.mount("259:0", "/srv", "/dev/nvme1n1")
        self.refused("nvme1n1 is mounted on /srv", OTHER)

    def test_one_that_is_used_keeps_all_where_they_are(self):
        self.host.add_device(OTHER, group="4")
        self.host.busy.add("nvme0n1")
        self.refused("nvme0n1 is in exclusive use", OTHER, DEVICE)

    def test_a_disk_of_a_guest_is_not_taken_back(self):
        self.run_it(DEVICE)
        self.host.written.clear()
        self.host.busy.add("vfio/3")
        self.refused("a process has /dev/vfio/3 open", "--back", DEVICE)
        self.host.add_open_file(900, "ringside", "/dev/vfio/3")
        self.refused("process 900 (ringside) has /dev/vfio/3 open", "--back", DEVICE)

    def test_the_list_says_it(self):
        self.host.put(f"sys/bus/pci/devices/{DEVICE}/nvme/nvme0/model", "Fast 1T\x9b1m   \n")
        self.host.mount("259:0", "/srv", "/dev/nvme0n1")
        self.host.add_device("0000:00:06.0", group="", driver="")
        self.assertEqual(self.run_it("--list").splitlines(), [
            f"{DEVICE} Fast 1T\\x9b1m: driver nvme, IOMMU group 3, nvme0n1 is mounted on /srv",
            "0000:00:06.0: driver none, no IOMMU, no use seen"])


if __name__ == "__main__":
    unittest.main()
