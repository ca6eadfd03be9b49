#!/usr/bin/python3
"""tools/compare vsock without a VMM: what is asked of whom, and what becomes of samples."""

import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from comparekit import net_options, vsock, vsock_contestants, vsock_table
from comparekit.common import BadInput, MeasureError
from compare_samples import drawn, host, job, results_of, sample

PATH = "/run/x/vm.sock"
SETTINGS = {"depths": (1, 16)}


def find_contestants(*arguments):
    """What the command line asks for, where each program is there and of version 10.0."""
    with host(), mock.patch("comparekit.vsock_contestants.first_line", return_value="version 10.0"):
        return vsock_contestants.find_contestants(net_options.parse_vsock(list(arguments)))


def target(kind, message=64):
    return vsock.VsockTarget(kind, message, PATH)


class Targets(unittest.TestCase):
    def test_each_kind_asks_for_its_jobs(self):
        ringside = find_contestants()[0][0]
        for kind, words, jobs in (("echo", ["qd=1,16"], 2), ("out", ["qd=1"], 1),
                                  ("flood", ["qd=1,16"], 2)):
            with self.subTest(kind):
                one = target(kind, 4096)
                self.assertEqual(one.closed_loop(ringside, SETTINGS), words)
                self.assertEqual(one.jobs(ringside, SETTINGS), jobs)
                self.assertEqual(one.load(SETTINGS), [f"vsock={kind}", "message=4096"])

    def test_bytes_are_checked_where_there_are_some(self):
        self.assertEqual([target(kind).is_checked for kind in vsock.KINDS], [True, True, False])
        self.assertIn("verify=1", target("out").verification(16))

    def test_bytes_that_never_reached_the_host_are_told(self):
        fine = {"sent_bytes": 640, "client_bytes": 640}
        target("out").check([fine])
        with self.assertRaisesRegex(MeasureError, "640 bytes sent, 576 reached the host"):
            target("out").check([fine, {**fine, "client_bytes": 576}])

    def test_a_socket_that_was_left_goes(self):
        with tempfile.TemporaryDirectory() as directory:
            one = vsock.VsockTarget("echo", 64, f"{directory}/vm.sock")
            Path(one.path).touch()
            one.prepare()
            one.prepare()
            self.assertFalse(Path(one.path).exists())

    def test_a_client_that_ends_by_itself_is_told(self):
        options = net_options.parse_vsock(["--client", "/bin/true"])
        all_targets = vsock.VsockTargets(options)
        with self.assertRaisesRegex(MeasureError, "client ended by itself, with status"):
            with all_targets as targets:
                self.assertEqual(targets[0].helper, all_targets._client.pid)
                directory = Path(targets[0].path).parent
                all_targets._client.wait(60)
        self.assertFalse(directory.exists())


class Contestants(unittest.TestCase):
    def test_each_is_given_the_socket_and_the_words(self):
        found, missing = find_contestants("--firecracker", "fc", "--cloud-hypervisor", "ch")
        self.assertEqual([one.name for one in found],
                         ["Ringside default", "Ringside poll always", "Ringside no poll", "Firecracker",
                          "Cloud Hypervisor"])
        self.assertEqual(set(missing), {"QEMU", "crosvm"})
        for one in found:
            with self.subTest(one.name), tempfile.TemporaryDirectory() as scratch:
                words = " ".join(one.command(target("echo"), "vsock=echo end=x", scratch))
                config = Path(scratch) / "firecracker.json"
                if config.exists():
                    words += config.read_text()
                for expected in (PATH, "vsock=echo end=x"):
                    self.assertIn(expected, words)

    def test_what_ringside_counts_is_taken_from_its_statistics(self):
        ringside = find_contestants()[0][0]
        queue = {"requests": 300, "errors": 1, "kicks": 3, "interrupts": 0}
        said = "log line\n" + json.dumps({"vsocks": [{"queues": [queue, queue], "connected": 5,
                                                      "refused": 1, "credit_waits": 2}]})
        self.assertEqual(ringside.check(target("out"), said),
                         {"packets": 600, "errors": 2, "kicks": 6, "interrupts": 0, "connected": 5,
                          "refused": 1, "credit_waits": 2})
        with self.assertRaisesRegex(MeasureError, "--stats json cannot be read"):
            ringside.check(target("out"), '{"vsocks": []}')


class Options(unittest.TestCase):
    def test_bad_ones_name_the_value(self):
        for arguments, message in ((["--messages", "7"], "'7' is no length of a message.*vsock --help"),
                                   (["--messages", "65537"], "'65537'"),
                                   (["--kinds", "echo,ping"], "'ping' is none of echo, out, flood"),
                                   (["--crosvm", "cr"], "--crosvm")):
            with self.subTest(arguments), self.assertRaisesRegex(BadInput, message):
                net_options.parse_vsock(arguments)


def results():
    """Two rounds: Ringside has 2,000 a second, and 100 more in the second; Firecracker half as many."""
    names = [("Ringside default", "Ringside"), ("Firecracker", "Firecracker")]
    samples = []
    for number in range(2):
        for name, _ in names:
            one = job(iops=(2000 + 100 * number) / (2 if name == "Firecracker" else 1), vsock="echo",
                      cpu_ns_per_io=9000, host_cpu_ns_per_io=4000, kicks_per_io=0.0005,
                      exits_per_io=0.002, interrupts_per_io=0)
            one_way = {key: value for key, value in one.items() if key != "latency_ns"}
            samples.append(sample(name, number, [one, {**one, "qd": 16}], "echo 64"))
            samples.append(sample(name, number, [one_way], "out 64"))
    found = results_of(names, samples, "tools/compare vsock")
    found["settings"] = {**vsock.settings_of(net_options.parse_vsock([])), "wait": "poll", "rounds": 2,
                         "runtime_ms": 300}
    found["targets"] = [{"name": target(kind).name, "text": target(kind).text}
                        for kind in ("echo", "out")]
    return found


class Output(unittest.TestCase):
    def test_the_table(self):
        text = vsock_table.markdown(results())
        for words in ("# Vsocks beside each other", "one vsock, completions by poll", "## echo 64: round",
                      "## out 64", "| 1 connection ", "| 16 connections "):
            self.assertIn(words, text)
        # k a second, ratio, p50, p99, CPU, less vCPU, kicks and exits of 1,000.
        self.assertRegex(text, r"\| \*\*Ringside default\*\* +\| +2\.05 ±2% \| +1\.00 \| 2\.00 ±0% \| "
                               r"5\.00 ±0% \| 9\.00 ±0% \| +4\.00 ±0% \| 0\.50 ±0% \| 2\.00 ±0% \|")
        self.assertRegex(text, r"\| Firecracker +\| +1\.02 ±2% \| +0\.50 ")
        # What goes one way has no latency.
        self.assertRegex(text.split("## out 64")[1], r"\| 1 connection +\| +k/s \| ratio \| +CPU, us ")

    def test_results_are_known_by_their_settings_and_drawn(self):
        status, text = drawn(results(), "vsock.svg")
        self.assertEqual(status, 0)
        for words in ("Ringside default", "Firecracker", "echo 64, 16 connections",
                      "thousand a second"):
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
