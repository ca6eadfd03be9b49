#!/usr/bin/python3
"""What the comparison in the lab makes of its results, and which ones it refuses."""

import io
import json
import pathlib
import tarfile
import tempfile
import unittest
from unittest import mock

from comparekit import lab, lab_jobs, lab_machines, lab_results, lab_table, options as command_line
from comparekit.common import BadInput, MeasureError
from comparekit.contestants import Ringside
from comparekit.iothread import Signalling

RUNTIME_MS = 1000
FACTS = "clocksource=kvm-clock\nscheduler=none\nkernel=6.1\n"


def load_names(text):
    """The names of the jobs, and the depths of the sections, of --jobs."""
    return [(job.name, job.depths) for name in text.split(",")
            for job in lab_jobs.load(name, (1, 16)).jobs]


def fio_job(name, depth, ios):
    percentiles = ("50.000000", "90.000000", "99.000000", "99.900000", "99.990000")
    return {"jobname": f"{name}.qd{depth}", "error": 0, "usr_cpu": 1, "sys_cpu": 1,
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

    def __init__(self, machine, names):
        self.names = load_names(names)
        self.jobs = [fio_job(name, depth, 1000 * depth)
                     for name, depths in self.names for depth in depths]
        self.facts = FACTS
        # Ticks of 10 ms, ns of the vCPUs' threads, ns of the disks' thread, exits, interrupts.
        self.begin, self.end = "100 1000 1000 5 70", "200 600001000 300001000 3005 570"
        self.statistics = ringside_statistics(17_500) if "ringside" in machine else None
        self.failed = None

    def files(self):
        if self.failed:
            yield "failed", self.failed
            return
        yield "result.json", "qd1 : Saving output of prerun\n" + json.dumps({"jobs": self.jobs})
        yield "facts", self.facts
        yield "statistics.json", json.dumps(self.statistics) if self.statistics else ""
        for name, _ in self.names:
            yield f"{name}.begin", self.begin
            yield f"{name}.end", self.end


def archive_of(runs):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for machine, run in runs.items():
            for name, text in run.files():
                entry = tarfile.TarInfo(f"./1/1-cpu/{machine}/{name}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
    buffer.seek(0)
    return tarfile.open(fileobj=buffer)


class Lab(unittest.TestCase):
    """No program is started, and nothing is asked of this machine."""

    def setUp(self):
        for name, value in (("contestants.first_line", "version 10.0"),
                            ("lab_machines.qemu_command", ["qemu"]),
                            ("machine_info.describe", dict.fromkeys(
                                ("cpu", "processors", "memory_gib", "kernel", "distribution", "kvm",
                                 "hypervisor", "commit"), "some"))):
            patch = mock.patch(f"comparekit.{name}", return_value=value)
            patch.start()
            self.addCleanup(patch.stop)

    def options(self, *words):
        return command_line.parse_lab(["--ringside", "ringside", *words])


class Choice(Lab):
    def names(self, *words):
        return [machine.contestant.name for machine in lab_machines.machines_of(self.options(*words))]

    def test_ringside_as_a_user_gets_it_is_there(self):
        machines = lab_machines.machines_of(self.options())
        self.assertEqual(machines[0].contestant.name, "Ringside default")
        self.assertEqual(machines[0].command, "ringside run --stats json")
        self.assertEqual(self.names()[1:], ["Ringside no poll", "QEMU 10.0 io_uring no poll",
                                            "QEMU 10.0 io_uring poll 32.8us"])

    def test_a_way_to_signal_is_a_row_that_polls_by_default(self):
        machines = lab_machines.machines_of(self.options("--ringside-signal", "batched",
                                                         "--only", "Ringside signal"))
        self.assertEqual([machine.command for machine in machines],
                         ["ringside run --stats json --iothread signal=batched"])

    def test_qemus_other_engine_is_an_option(self):
        self.assertEqual(self.names("--qemu-aio", "native", "--skip", "Ringside"),
                         ["QEMU 10.0 native no poll", "QEMU 10.0 native poll 32.8us"])

    def test_nobody_left_is_refused(self):
        with self.assertRaisesRegex(BadInput, "leave nobody; there are: Ringside default"):
            self.names("--only", "Bochs")

    def test_a_namespace_has_every_driver(self):
        names = self.names("--nvme")
        for name in ("Ringside nvme default", "Ringside uring_cmd default", "QEMU 10.0 io_uring no poll",
                     "Ringside vfio", "QEMU 10.0 vfio"):
            self.assertIn(name, names)


class Loads(Lab):
    def loads(self, *words):
        options = self.options("--jobs", *words)
        return options, [lab_jobs.load(name, options.depths) for name in options.jobs]

    def job_file(self, *words):
        options, loads = self.loads(*words)
        return lab_jobs.job_file(loads, options)

    def test_an_unknown_one_is_refused(self):
        for name in ("deep", "think", "think=0us", "think=500", "think=5us;reboot"):
            with self.assertRaisesRegex(BadInput, f"'{name}' is none of plain"):
                self.loads(name)

    def test_thinking_is_between_bursts(self):
        text = self.job_file("think=2ms", "--depths", "4")
        self.assertIn("[think=2ms-4.qd4]\nstonewall\niodepth=4\n", text)
        self.assertIn("thinktime=2ms\nthinktime_blocks=4\n", text)

    def test_mixed_jobs_begin_together(self):
        text = self.job_file("mixed")
        self.assertEqual(text.count("stonewall"), 1)
        self.assertEqual(text.count("exec_prerun=/autorun begin mixed 2"), 2)

    def test_two_vcpus_share_the_depth_and_one_queue(self):
        options, loads = self.loads("plain,two-cpus", "--depths", "1,8")
        self.assertEqual([job.depths for job in loads[1].jobs], [[8]])
        self.assertIn("iodepth=4\nnumjobs=2\ncpus_allowed=0-1\n", lab_jobs.job_file(loads[1:], options))
        lines = list(lab.guest_lines(lab_machines.machines_of(options)[:1], loads))
        self.assertRegex(lines[0], r"^1-cpu/ringside-auto-default 1 none /1-cpu.fio plain-1,plain-8 - "
                                   r"--disk ")
        self.assertRegex(lines[1], r"^2-cpus/ringside-auto-default 2 none /2-cpus.fio two-cpus-8 - --disk "
                                   r"\S+,queues=1 ringside run")

    def test_two_vcpus_need_a_depth_to_share(self):
        with self.assertRaisesRegex(BadInput, "even number"):
            self.loads("two-cpus", "--depths", "1,3")
        with self.assertRaisesRegex(BadInput, "not with --nvme"):
            self.loads("two-cpus", "--nvme")

    def test_the_writers_have_their_own_pattern(self):
        text = self.job_file("seed-001", "--rw", "read", "--bs", "64k")
        self.assertIn("iodepth=16\nnumjobs=4\nrw=randwrite\nbs=4k\n", text)


class Rounds(Lab):
    def test_each_begins_with_another_guest(self):
        self.assertEqual([lab.turned("abc", number) for number in range(1, 5)],
                         ["abc", "bca", "cab", "abc"])

    def test_one_that_is_lost_leaves_the_others(self):
        def run_script(results, _guests, _progress):
            if results.name == "round-1.tar":
                raise MeasureError("it crashed")
            (results.parent / "figures").write_text((results.parent / lab.GUESTS).read_text())
            with tarfile.open(results, "w") as archive:
                archive.add(results.parent / "figures", "2/figures")
            return {(2, "a"): 0.5}

        progress = mock.Mock()
        with tempfile.TemporaryDirectory() as name, mock.patch("comparekit.lab.run_script", run_script):
            directory = pathlib.Path(name)
            others = lab.run_rounds(directory, 2, lambda _number, results: results, [["a\n", "b\n"]],
                                    progress)
            with tarfile.open(directory / "results.tar") as archive:
                self.assertEqual(archive.extractfile("2/figures").read(), b"b\na\n")
        self.assertEqual(others, {(2, "a"): 0.5})
        progress.note.assert_called_once_with("round 1 is lost: it crashed")

    def test_the_disk_that_is_measured_is_no_hole(self):
        with tempfile.TemporaryDirectory() as name:
            data = lab.write_data(pathlib.Path(name) / "data.img").read_bytes()
        self.assertEqual(len(data), lab.DATA_MIB << 20)
        self.assertNotIn(bytes(4096), data)


class ReadResults(Lab):
    def setUp(self):
        super().setUp()
        self.others = {}
        self.prepare("plain")

    def prepare(self, jobs):
        self.lab_options = self.options("--rounds", "1", "--runtime", f"{RUNTIME_MS}ms", "--depths", "1,16",
                                        "--jobs", jobs, "--skip", "Ringside no", "--skip", "QEMU*poll 32")
        self.machines = lab_machines.machines_of(self.lab_options)
        self.runs = {machine.name: Run(machine.name, jobs) for machine in self.machines}
        self.ringside, self.qemu = self.runs.values()

    def read(self):
        loads = [lab_jobs.load(name, self.lab_options.depths) for name in self.lab_options.jobs]
        others = {(1, f"1-cpu/{name}"): self.others.get(name, 0.01) for name in self.runs}
        return lab_results.read(archive_of(self.runs), self.lab_options, self.machines, loads, others)

    def refused(self, reason):
        """One guest is; the other's figures are there."""
        results = self.read()
        self.assertEqual(len(results["samples"]), 1)
        self.assertRegex("\n".join(results["failures"]),
                         r"^\S+ .*, round 1 in the guest with 1 vCPU, 1 queue: .*" + reason)

    def test_costs_are_those_of_the_vmm_by_io(self):
        job = self.read()["samples"][0]["jobs"][0]
        self.assertEqual(job["ios"], 1000)
        self.assertEqual(job["cpu_ns_per_io"], 1_000_000)       # 100 ticks
        self.assertEqual(job["host_cpu_ns_per_io"], 400_000)    # less 600 ms of the vCPU
        self.assertEqual(job["exits_per_io"], 3)
        self.assertEqual(job["interrupts_per_io"], 0.5)
        self.assertEqual(job["latency_ns"]["mean"], 1_000_000)

    def test_ringside_says_what_it_counted(self):
        said = [sample["self"] for sample in self.read()["samples"]]
        self.assertAlmostEqual(said[0]["kicks_per_request"], 0.5)
        self.assertAlmostEqual(said[0]["interrupts_per_request"], 0.25)
        self.assertEqual(said[1], {})

    def test_table_has_both_and_says_that_time_is_emulated(self):
        results = self.read()
        self.assertTrue(lab_table.is_lab(results))
        text = lab_table.markdown(results)
        self.assertIn("EMULATED time", text)
        for name in (r"\*\*Ringside default\*\*", "QEMU 10.0 io_uring no poll"):
            self.assertRegex(text, name + r" +\| +1\.00 ±0% \|")
        self.assertIn("Ratios are to Ringside default", lab_table.terminal(results))

    def test_table_tells_latency_exits_interrupts_and_kicks(self):
        text = lab_table.markdown(self.read())
        # mean, p50, p99, exits, interrupts, by depth
        self.assertRegex(text, r"default\*\* .* 1\.00 \| 1000 ±0% \| 1\.00 ±0% \| 1\.00 ±0% \| "
                               r"+3\.00 ±0% \| +0\.50 ±0%")
        self.assertRegex(text, r"default\*\* .* \| 62\.5 ±0% \| .* \| 0\.19 ±0% \| +0\.03 ±0%")
        self.assertIn("kicks_per_request 0.500, interrupts_per_request 0.250", text)

    def test_jobs_at_the_same_time_share_what_they_used(self):
        self.prepare("plain,mixed")
        for run in self.runs.values():
            run.statistics = run.statistics and ringside_statistics(60_000)
        samples = {sample["target"]: sample for sample in self.read()["samples"]
                   if sample["contestant"] == "Ringside default"}
        mixed = samples["lab mixed"]["jobs"]
        self.assertEqual([job["qd"] for job in mixed], [1, 32])
        self.assertEqual([job["exits_per_io"] for job in mixed], [3000 / 33_000] * 2)
        # What the guest's VMM says of itself is of all loads, and told once.
        self.assertEqual(samples["lab"]["self"]["requests"], 60_000)
        self.assertEqual(samples["lab mixed"]["self"], {})

    def test_interrupts_that_the_guest_did_not_find_are_refused(self):
        self.qemu.end = "200 600001000 300001000 3005 70"
        self.refused("'interrupts': 0")

    def test_noise_marks_the_guest_that_had_it(self):
        self.others["qemu-io_uring-0"] = 0.3
        results = self.read()
        reason = "others used 30% of the processors during it"
        self.assertEqual([sample["noisy"] for sample in results["samples"]], [None, reason])
        self.assertEqual(results["noise"], [f"round 1 lab: QEMU 10.0 io_uring no poll: {reason}"])

    def test_noise_is_looked_at_from_guest_to_guest(self):
        shares = iter((0.1, 0.2))
        use = lambda: mock.Mock(others=lambda: next(shares))
        lines = ["round 1: 1-cpu/a", "attempt 1: hung", "round 2: 1-cpu/a"]
        self.assertEqual(lab.follow(lines, 2, mock.Mock(), use),
                         {(1, "1-cpu/a"): 0.1, (2, "1-cpu/a"): 0.2})

    def test_a_guest_that_failed_is_named_with_its_last_words(self):
        self.qemu.failed = "Kernel panic\n"
        self.refused("its last words: 'Kernel panic")

    def test_an_error_of_fio_is_refused(self):
        self.qemu.jobs[1]["error"] = 5
        self.refused("error 5")

    def test_a_job_that_did_nothing_is_refused(self):
        self.ringside.jobs[0]["mixed"]["total_ios"] = 0
        self.refused("no I/O")

    def test_a_job_that_is_missing_is_refused(self):
        self.qemu.jobs.pop()
        self.refused("not all jobs")

    def test_a_job_that_ended_early_is_refused(self):
        self.qemu.jobs[0]["mixed"]["runtime"] = RUNTIME_MS // 2
        self.refused("0.50 times the time")

    def test_a_disk_thread_that_never_ran_is_refused(self):
        self.qemu.end = "200 600001000 1000 3005 570"
        self.refused("'disk_thread_ns': 0")

    def test_unequal_guests_are_refused(self):
        self.qemu.facts = FACTS.replace("kvm-clock", "hpet")
        with self.assertRaisesRegex(MeasureError, "same conditions"):
            self.read()

    def test_nothing_that_counts_is_a_failure_of_all(self):
        for run in self.runs.values():
            run.jobs.pop()
        with self.assertRaisesRegex(MeasureError, "Ringside default, round 1 .* not all jobs"):
            self.read()

    def test_an_engine_that_fell_back_is_refused(self):
        self.ringside.statistics["disks"][0]["aio"] = "threads"
        self.refused("fell back to threads")

    def test_requests_that_ringside_did_not_see_are_refused(self):
        self.ringside.statistics = ringside_statistics(16_999)
        self.refused("fio counted 17000")


if __name__ == "__main__":
    unittest.main()
