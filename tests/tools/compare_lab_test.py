#!/usr/bin/python3
"""What the comparison in the lab makes of its results, and which ones it refuses."""

import argparse
import io
import json
import tarfile
import unittest
from unittest import mock

from comparekit import lab, table
from comparekit.common import MeasureError
from comparekit.contestants import Qemu, Ringside
from comparekit.iothread import POLLING

DEPTHS = (1, 16)
RUNTIME_MS = 1000
FACTS = "clocksource=kvm-clock\nscheduler=none\nkernel=6.1\n"


def fio_job(depth, ios):
    percentiles = ("50.000000", "90.000000", "99.000000", "99.900000", "99.990000")
    return {"jobname": f"qd{depth}", "error": 0, "usr_cpu": 1, "sys_cpu": 1,
            "job_runtime": RUNTIME_MS,
            "mixed": {"total_ios": ios, "iops": ios, "runtime": RUNTIME_MS,
                      "lat_ns": {"min": 1, "mean": 1e6 / depth, "max": 9,
                                 "percentile": {name: 1000 for name in percentiles}}}}


def ringside_statistics(requests):
    return {"disks": [{"aio": "io_uring",
                       "queues": [{"requests": requests, "errors": 0, "kicks": requests // 2,
                                   "interrupts": requests // 4}]}],
            "io_threads": [], "vcpus": []}


class Run:
    """The files of one guest in the archive; a test spoils one."""

    def __init__(self, machine):
        self.jobs = [fio_job(depth, 1000 * depth) for depth in DEPTHS]
        self.facts = FACTS
        # Ticks of 10 ms, ns of the vCPU's thread, ns of the disks' thread, exits.
        self.begin, self.end = "100 1000 1000 5", "200 600001000 300001000 3005"
        self.statistics = ringside_statistics(17_500) if machine == "ringside" else None

    def files(self):
        yield "result.json", "qd1 : Saving output of prerun\n" + json.dumps({"jobs": self.jobs})
        yield "facts", self.facts
        yield "statistics.json", json.dumps(self.statistics) if self.statistics else ""
        for depth in DEPTHS:
            yield f"qd{depth}.begin", self.begin
            yield f"qd{depth}.end", self.end


def archive_of(runs):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for machine, run in runs.items():
            for name, text in run.files():
                entry = tarfile.TarInfo(f"./1/{machine}/{name}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
    buffer.seek(0)
    return tarfile.open(fileobj=buffer)


class ReadResults(unittest.TestCase):
    def setUp(self):
        patch = mock.patch("comparekit.contestants.first_line", return_value="version 10.0")
        patch.start()
        self.addCleanup(patch.stop)
        patch = mock.patch("comparekit.machine_info.describe", return_value=dict.fromkeys(
            ("cpu", "processors", "memory_gib", "kernel", "distribution", "kvm", "hypervisor",
             "commit"), "some"))
        patch.start()
        self.addCleanup(patch.stop)
        self.machines = {"ringside": Ringside("ringside", "auto", POLLING["never"]),
                         "qemu-0": Qemu(["qemu"], "io_uring", 0)}
        self.runs = {machine: Run(machine) for machine in self.machines}

    def read(self):
        options = argparse.Namespace(command="tools/compare lab", ringside="ringside", rounds=1,
                                     rw="randread", rwmix=70, bs="4k", depths=DEPTHS,
                                     runtime=RUNTIME_MS, nvme=False)
        return lab.read_results(archive_of(self.runs), options, self.machines)

    def refused(self, reason):
        with self.assertRaisesRegex(MeasureError, reason):
            self.read()

    def test_costs_are_those_of_the_vmm_by_io(self):
        job = self.read()["samples"][0]["jobs"][0]
        self.assertEqual(job["ios"], 1000)
        self.assertEqual(job["cpu_ns_per_io"], 1_000_000)       # 100 ticks
        self.assertEqual(job["host_cpu_ns_per_io"], 400_000)    # less 600 ms of the vCPU
        self.assertEqual(job["exits_per_io"], 3)
        self.assertEqual(job["latency_ns"]["mean"], 1_000_000)

    def test_ringside_says_what_it_counted(self):
        said = [sample["self"] for sample in self.read()["samples"]]
        self.assertAlmostEqual(said[0]["kicks_per_request"], 0.5)
        self.assertAlmostEqual(said[0]["interrupts_per_request"], 0.25)
        self.assertEqual(said[1], {})

    def test_table_has_both_and_says_that_time_is_emulated(self):
        text = table.markdown(self.read())
        self.assertIn("EMULATED time", text)
        for name in (r"\*\*Ringside no poll\*\*", "QEMU 10.0 io_uring no poll"):
            self.assertRegex(text, name + r" +\| +1\.00 \|")

    def test_table_tells_means_exits_and_kicks(self):
        text = table.markdown(self.read())
        self.assertIn("- Ringside no poll: 1000 us and 3.0 exits at 1; 62 us and 0.2 exits at 16", text)
        self.assertIn("kicks_per_request 0.500, interrupts_per_request 0.250", text)

    def test_noise_marks_every_sample(self):
        results = self.read()
        lab.mark_noisy(results, "others were busy")
        self.assertEqual([sample["noisy"] for sample in results["samples"]], ["others were busy"] * 2)
        self.assertEqual(len(results["noise"]), 2)

    def test_an_error_of_fio_is_refused(self):
        self.runs["qemu-0"].jobs[1]["error"] = 5
        self.refused("error 5")

    def test_a_job_that_did_nothing_is_refused(self):
        self.runs["ringside"].jobs[0]["mixed"]["total_ios"] = 0
        self.refused("no I/O")

    def test_a_job_that_is_missing_is_refused(self):
        self.runs["qemu-0"].jobs.pop()
        self.refused("not all jobs")

    def test_a_job_that_ended_early_is_refused(self):
        self.runs["qemu-0"].jobs[0]["mixed"]["runtime"] = RUNTIME_MS // 2
        self.refused("0.50 times the time")

    def test_a_disk_thread_that_never_ran_is_refused(self):
        self.runs["qemu-0"].end = "200 600001000 1000 3005"
        self.refused("'disk_thread_ns': 0")

    def test_unequal_guests_are_refused(self):
        self.runs["qemu-0"].facts = FACTS.replace("kvm-clock", "hpet")
        self.refused("same conditions")

    def test_an_engine_that_fell_back_is_refused(self):
        self.runs["ringside"].statistics["disks"][0]["aio"] = "threads"
        self.refused("fell back to threads")

    def test_requests_that_ringside_did_not_see_are_refused(self):
        self.runs["ringside"].statistics = ringside_statistics(16_999)
        self.refused("fio counted 17000")


if __name__ == "__main__":
    unittest.main()
