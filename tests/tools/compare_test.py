#!/usr/bin/python3
"""tools/compare without a VMM: how it reads guests, processor time and fio."""

import json
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from compare_contestant import CACHED, DISK, NULL, SLOW, ShellContestant, job
from comparekit import contestants, cpu, guest_run, host, iothread, schedule
from comparekit.common import MeasureError


def run_script(script):
    return guest_run.run(ShellContestant(script), DISK, ["rw=randread"], 0.1)


def printing(*jobs):
    return "".join(f"echo '{json.dumps(line)}'\n" for line in jobs)


class JobLines(unittest.TestCase):
    def test_figures_come_from_what_was_counted(self):
        parsed = guest_run.parse_job(json.dumps(job()))
        self.assertEqual(parsed["iops"], 2000)
        self.assertEqual(parsed["kicks_per_io"], 0.25)

    def test_a_job_that_measured_nothing_is_a_failure(self):
        for changes, message in (({"ios": 0}, "no I/O"), ({"errors": 1}, "1 I/O errors"),
                                 ({"mismatches": 3}, "3 blocks"),
                                 ({"error": "no disk"}, "no disk")):
            with self.subTest(changes), self.assertRaisesRegex(MeasureError, message):
                guest_run.parse_job(json.dumps(job(**changes)))

    def test_a_line_in_pieces_is_sampled_at_its_first_byte_and_its_last(self):
        samples = iter(range(10))
        lines = guest_run.SerialLines(lambda: next(samples))
        self.assertEqual(list(lines.feed(b'{"a"')), [])
        self.assertEqual(list(lines.feed(b':1}\r\nnext\npart')),
                         [('{"a":1}', 0, 1), ("next", 2, 3)])

    def test_processor_time_is_that_between_the_lines(self):
        output = guest_run.GuestOutput()
        at = lambda total, vcpu, time_ms: cpu.CpuSample(total, vcpu, time_ms * 1_000_000)
        output.add("guest: rsdp=none", at(0, 0, 0), at(1_000, 0, 100))
        # 1 s with a warm-up, of which half was measured: half of the time counts, on 1000 I/Os.
        output.add(json.dumps(job()), at(2_001_000, 1_500_000, 1100), at(9_000_000, 0, 1200))
        self.assertAlmostEqual(output.jobs[0]["cpu_ns_per_io"], 1000)
        self.assertAlmostEqual(output.jobs[0]["host_cpu_ns_per_io"], 250)
        self.assertAlmostEqual(output.jobs[0]["host_cpu_share"], 0.0005)


class Boots(unittest.TestCase):
    def test_jobs_are_collected_and_the_command_line_arrives(self):
        jobs, _ = run_script(printing(job(qd=1), job(qd=2))
                             + '[ "$1" = "rw=randread end=poweroff" ]')
        self.assertEqual([found["qd"] for found in jobs], [1, 2])

    def test_failures_are_loud_and_show_the_last_output(self):
        for script, message in (
                ("echo 'guest: FAIL disk: expected 1 got 0'", "FAIL disk"),
                ("echo nothing here", "the guest ran no job"),
                ("echo broken >&2; exit 2", "exit status 2 instead of 0\n    . broken"),
                ("echo '{\"job\":'", "no JSON"),
                (printing(job(), job(error="too deep")), "too deep")):
            with self.subTest(script), self.assertRaisesRegex(MeasureError, message):
                run_script(script)

    def test_a_hang_is_ended(self):
        with mock.patch.object(guest_run, "_PATIENCE_S", 3), \
                self.assertRaisesRegex(MeasureError, "hangs: 1 jobs done.*killed"):
            run_script(printing(job()) + "sleep 60")

    def test_a_vmm_that_outlives_its_guest_is_a_failure(self):
        with mock.patch.object(guest_run, "_END_PATIENCE_S", 0.1), \
                self.assertRaisesRegex(MeasureError, "its guest has ended"):
            run_script(printing(job()) + "echo guest: end=poweroff; sleep 60")

    def test_a_program_that_is_not_there(self):
        missing = ShellContestant("")
        missing.command = lambda *_: ["/nonexistent/vmm"]
        with self.assertRaisesRegex(MeasureError, "cannot start '/nonexistent/vmm'"):
            guest_run.run(missing, DISK, [], 0)


class ProcessorTime(unittest.TestCase):
    def test_that_of_children_counts(self):
        # The parent only waits; 100 ms are the child's.
        with subprocess.Popen(["sh", "-c", "sh -c 'while :; do :; done' & wait"],
                              start_new_session=True) as parent:
            try:
                deadline = time.monotonic() + 20
                while cpu.sample(parent.pid).total_ns < 100_000_000:
                    self.assertLess(time.monotonic(), deadline, "the child's time does not show")
                    time.sleep(0.02)
            finally:
                os.killpg(parent.pid, signal.SIGKILL)

    def test_that_of_a_thread_that_spins_is_no_vcpus(self):
        script = ("import threading, time, os\n"
                  "def spin():\n"
                  "    while True: pass\n"
                  "for name, work in (('io-disk', spin), ('vcpu-0', lambda: time.sleep(60))):\n"
                  "    def named(name=name, work=work):\n"
                  "        task = f'/proc/self/task/{threading.get_native_id()}'\n"
                  "        open(f'{task}/comm', 'w').write(name)\n"
                  "        work()\n"
                  "    threading.Thread(target=named, daemon=True).start()\n"
                  "print(flush=True)\n"
                  "time.sleep(60)\n")
        with subprocess.Popen(["/usr/bin/python3", "-c", script],
                              stdout=subprocess.PIPE) as process:
            try:
                process.stdout.read(1)
                before = cpu.sample(process.pid)
                deadline = time.monotonic() + 20
                while (used := cpu.sample(process.pid) - before).total_ns < 200_000_000:
                    self.assertLess(time.monotonic(), deadline, "the spinning does not show")
                    time.sleep(0.02)
                self.assertLess(used.vcpu_ns, 50_000_000)
            finally:
                process.kill()

    def test_threads_of_vcpus_are_known_by_name(self):
        for name in ("vcpu-0", "CPU 0/KVM", "fc_vcpu 0", "vcpu0", "crosvm_vcpu0"):
            self.assertTrue(cpu.VCPU_THREAD.search(name), name)
        for name in ("io-disk", "IO t", "iou-wrk-12", "ceiling", "vmm", "qemu-system-x86"):
            self.assertFalse(cpu.VCPU_THREAD.search(name), name)

    def test_vcpus_are_kept_apart_from_all_others(self):
        allowed = sorted(os.sched_getaffinity(0))
        first, last = allowed[0], allowed[-1]
        script = ("import threading, time\n"
                  "def run():\n"
                  "    open('/proc/thread-self/comm', 'w').write('vcpu 0')\n"
                  "    print(flush=True)\n"
                  "    time.sleep(60)\n"
                  "threading.Thread(target=run, daemon=True).start()\n"
                  "time.sleep(60)\n")
        with subprocess.Popen(["/usr/bin/python3", "-c", script],
                              stdout=subprocess.PIPE) as process:
            try:
                process.stdout.read(1)
                cpu.keep_apart(process.pid, first, last)
                found = {}
                for task in Path(f"/proc/{process.pid}/task").iterdir():
                    name = (task / "comm").read_text().strip()
                    found[name] = os.sched_getaffinity(int(task.name))
                self.assertEqual(found, {"vcpu 0": {first}, "python3": {last}})
            finally:
                process.kill()

    def test_a_process_that_has_ended_has_none(self):
        with subprocess.Popen(["true"]) as process:
            pass
        self.assertIsNone(cpu.sample(process.pid))


class RingsideStatistics(unittest.TestCase):
    def setUp(self):
        with mock.patch.object(contestants, "first_line", return_value="ringside 0"):
            self.auto, self.native = (
                contestants.Ringside("ringside", engine, iothread.POLLING["grow-shrink"])
                for engine in ("auto", "native"))

    def statistics(self, aio):
        queue = {"requests": 100, "errors": 0, "kicks": 50, "interrupts": 0}
        thread = {"io_uring_enters": 100, "sleeps": 10, "spin_wasted_ns": 3000}
        return "warning: x\n" + json.dumps(
            {"disks": [{"aio": aio, "queues": [queue]}], "io_threads": [thread],
             "vcpus": [{"exits": {"io": 20, "mmio": 5}}]})

    def test_counters_are_an_io(self):
        own = self.auto.check(DISK, self.statistics("io_uring"))
        self.assertEqual((own["kicks_per_request"], own["exits_per_request"]), (0.5, 0.25))
        self.assertEqual((own["sleeps_per_request"], own["wasted_spin_ns_per_request"]), (0.1, 30))

    def test_an_engine_that_fell_back_is_a_failure(self):
        self.native.check(DISK, self.statistics("native"))
        for contestant in (self.auto, self.native):
            with self.assertRaisesRegex(MeasureError, "fell back to threads"):
                contestant.check(DISK, self.statistics("threads"))

    def test_no_statistics_is_a_failure(self):
        with self.assertRaisesRegex(MeasureError, "stats json"):
            self.auto.check(DISK, "killed")

    def test_disks_are_asked_for_as_the_target_is(self):
        def disk_of(target):
            command = self.auto.command(target, "", "")
            return command[command.index("--disk") + 1]
        self.assertEqual(disk_of(DISK), "path=/data/a,,b.img,cache=none,aio=auto,queues=1")
        self.assertIn("cache=writeback", disk_of(CACHED))
        self.assertEqual(disk_of(SLOW), "type=null,size=1024M,latency=20us,queues=1")
        self.assertEqual(disk_of(NULL), "type=null,size=1024M,queues=1")

    def test_linux_aio_is_left_out_where_there_is_no_direct_io(self):
        self.assertTrue(self.native.serves(DISK))
        self.assertFalse(self.native.serves(CACHED))
        self.assertFalse(self.native.serves(NULL))


class Fio(unittest.TestCase):
    def output(self, **changes):
        latency = {"min": 1, "mean": 2.6, "max": 9,
                   "percentile": {f"{number:.6f}": 7 for number in (50, 90, 99, 99.9, 99.99)}}
        return "note: x\n" + json.dumps({"jobs": [{
            "jobname": "qd32", "error": 0, "usr_cpu": 20.0, "sys_cpu": 30.0, "job_runtime": 500,
            "mixed": {"total_ios": 1000, "runtime": 500, "iops": 2000.0, "lat_ns": latency,
                      **changes}}]})

    def test_figures(self):
        found, = host.parse_fio(self.output())
        self.assertEqual((found["qd"], found["iops"], found["latency_ns"]["p99"]), (32, 2000, 7))
        self.assertAlmostEqual(found["cpu_ns_per_io"], 250_000)

    def test_psync_is_for_one_in_flight(self):
        with mock.patch.object(host, "first_line", return_value="fio-3"):
            psync, io_uring = map(host.HostEngine, ("psync", "io_uring"))
        self.assertEqual(schedule.choose([psync, io_uring], [], [], (32,)), [io_uring])
        settings = {"rw": "randread", "rwmix": 70, "bs": "4k", "depths": (1, 32),
                    "runtime_ms": 100, "warmup_ms": 50}
        jobs = lambda engine: [word for word in engine.command(DISK, settings)
                               if word.startswith("--name=")]
        self.assertEqual(jobs(psync), ["--name=qd1"])
        self.assertEqual(jobs(io_uring), ["--name=qd1", "--name=qd32"])

    def test_no_io_is_a_failure(self):
        with self.assertRaisesRegex(MeasureError, "no I/O"):
            host.parse_fio(self.output(total_ios=0))


class Noise(unittest.TestCase):
    STAT = "cpu  {user} 0 50 800 0 7 3 {steal} 99 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"

    def test_others_are_what_is_busy_or_stolen_less_our_own(self):
        others, total = cpu._others_ticks(self.STAT.format(user=100, steal=40), own_ticks=60)
        self.assertEqual((others, total), (130, 1000))

    def wait(self, shares, patience_s):
        shares = iter(shares)
        use = lambda: SimpleNamespace(others=lambda: next(shares))
        return cpu.wait_for_quiet(0.05, patience_s, step_s=0.02, use=use)

    def test_waiting_ends_when_it_is_quiet_or_patience_is_over(self):
        self.assertIsNone(self.wait([0.5, 0.01], patience_s=20))
        self.assertEqual(self.wait([0.5] * 100, patience_s=0.05), 0.5)


if __name__ == "__main__":
    unittest.main()
