#!/usr/bin/python3
"""tools/compare net without a VMM or a network: what is asked of whom, and what becomes of samples."""

import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from comparekit import (guest_run, kvm_exits, net, net_contestants, net_plots, net_table, network,
                        net_options)
from comparekit.common import BadInput, MeasureError
from compare_samples import drawn, host, results_of, sample

TAP = network.Tap()
SETTINGS = {"depths": (1, 32), "in_rates": (0, 5000)}


def find_contestants(*arguments):
    """What the command line asks for, where each program is there and of version 10.0."""
    with host(), mock.patch("comparekit.net_contestants.first_line", return_value="version 10.0"):
        return net_contestants.find_contestants(net_options.parse_net(list(arguments)))


def target(kind, frame=64):
    return net.NetTarget(kind, frame, TAP)


def job(**changes):
    line = {"job": 0, "net": "echo", "frame": 64, "qd": 1, "rate": 0, "runtime_ns": 500_000_000,
            "ios": 1000, "errors": 0, "mismatches": 0, "lost": 0, "full": 0, "sent": 0, "kicks": 250,
            "interrupts": 0, "latency_ns": {"mean": 3, "p50": 2000, "p99": 5000, "p999": 6000}}
    return {**line, **changes}


class Targets(unittest.TestCase):
    def test_each_kind_asks_for_its_series(self):
        ceiling = net_contestants.Ceiling("ceiling")
        for kind, words, jobs in (("echo", ["qd=1,32"], 2), ("out", [], 1), ("in", ["rate=0,5000"], 2)):
            with self.subTest(kind):
                one = target(kind, 1500)
                self.assertEqual(one.closed_loop(ceiling, SETTINGS), words)
                self.assertEqual(one.jobs(ceiling, SETTINGS), jobs)
                self.assertEqual(one.load(SETTINGS)[:2], [f"net={kind}", "frame=1500"])

    def test_bytes_are_checked_where_they_come_back(self):
        self.assertEqual([target(kind).is_checked for kind in net.KINDS], [True, False, False])
        self.assertIn("verify=1", target("echo").verification(16))

    def test_frames_that_never_reached_the_host_are_told(self):
        counts = [1000, 1900]
        with mock.patch("comparekit.network.received", lambda _: counts.pop(0)):
            out = target("out")
            out.prepare()
            with self.assertRaisesRegex(MeasureError, "901 frames sent, 900 reached the host"):
                out.check([{"sent": 400}, {"sent": 501}])


class Jobs(unittest.TestCase):
    def test_what_the_tap_had_no_room_for_may_be_lost_and_no_more(self):
        parsed = guest_run.parse_job(json.dumps(job(net="in", lost=5, full=5)))
        self.assertEqual(parsed["iops"], 2000)
        with self.assertRaisesRegex(MeasureError, "6 frames lost, 5 of them"):
            guest_run.parse_job(json.dumps(job(net="in", lost=6, full=5)))

    def test_without_tracepoints_nobody_counts_exits(self):
        with tempfile.TemporaryDirectory() as nothing, \
                mock.patch.object(kvm_exits, "_TRACEFS", Path(nothing)):
            counter = kvm_exits.Counter()
            self.assertIsNone(counter.count([os.getpid()]))
            counter.close()


class Contestants(unittest.TestCase):
    def test_each_is_given_the_tap_and_the_address(self):
        found, missing = find_contestants("--firecracker", "fc", "--cloud-hypervisor", "ch", "--crosvm",
                                          "cr")
        self.assertEqual(missing, {})
        self.assertEqual([one.name for one in found],
                         ["Ringside default", "Ringside poll always", "Ringside no poll", "QEMU 10.0",
                          "Firecracker", "Cloud Hypervisor", "crosvm", "ceiling",
                          "ceiling, beside a busy thread"])
        for one in found:
            with self.subTest(one.name), tempfile.TemporaryDirectory() as scratch:
                words = " ".join(one.command(target("echo"), "net=echo end=x", scratch))
                config = Path(scratch) / "firecracker.json"
                if config.exists():
                    words += config.read_text()
                for expected in (TAP.name, TAP.guest_mac, "net=echo end=x"):
                    self.assertIn(expected, words)

    def test_a_peer_that_is_missing_is_said(self):
        with mock.patch("shutil.which", lambda name: name if "ringside" in name else None), \
                mock.patch("comparekit.net_contestants.first_line", return_value=""):
            found, missing = net_contestants.find_contestants(net_options.parse_net([]))
        self.assertEqual({one.family for one in found}, {"Ringside"})
        self.assertEqual(set(missing), {"QEMU", "firecracker", "cloud-hypervisor", "crosvm", "ceiling"})

    def test_what_ringside_counts_is_taken_from_its_statistics(self):
        ringside = find_contestants()[0][0]
        queue = {"requests": 300, "errors": 1, "kicks": 3, "interrupts": 0, "reads": 300}
        said = "log line\n" + json.dumps({"networks": [{"queues": [queue, queue]}]})
        self.assertEqual(ringside.check(target("in"), said),
                         {"frames": 600, "dropped": 2, "kicks": 6, "interrupts": 0,
                          "kicks_per_frame": 0.01, "interrupts_per_frame": 0})
        with self.assertRaisesRegex(MeasureError, "--stats json cannot be read"):
            ringside.check(target("in"), '{"networks": []}')


class Options(unittest.TestCase):
    def test_bad_ones_name_the_value(self):
        for arguments, message in ((["--frames", "59"], "'59' is no length of a frame.*net --help"),
                                   (["--frames", "1515"], "'1515'"),
                                   (["--kinds", "echo,ping"], "'ping' is none of echo, out, in"),
                                   (["--ringside-poll", "weighted"], "'weighted' is none of default"),
                                   (["--disk-dir", "/tmp"], "--disk-dir")):
            with self.subTest(arguments), self.assertRaisesRegex(BadInput, message):
                net_options.parse_net(arguments)

    def test_without_the_right_to_make_a_network_there_is_a_line(self):
        with mock.patch("os.access", return_value=True), \
                mock.patch.object(network, "_LIBC") as libc, \
                mock.patch("ctypes.get_errno", return_value=1), \
                self.assertRaisesRegex(BadInput, "network namespace.*run this as root"):
            libc.unshare.return_value = -1
            network.enter()


def results():
    """Two rounds: Ringside has 2,000 round trips and frames a second at the first load, and 100 more in
    the second round; QEMU half as many."""
    names = [("Ringside default", "Ringside"), ("QEMU 10.0", "QEMU"), ("ceiling", "ceiling"),
             ("ceiling, beside a busy thread", "ceiling")]
    samples = []
    for number in range(2):
        for name, _ in names:
            share = 2 if name.startswith("QEMU") else 1
            one = {"iops": (2000 + 100 * number) / share, "cpu_ns_per_io": 9000,
                   "host_cpu_ns_per_io": 4000, "kicks_per_io": 0.0005, "exits_per_io": 0.002,
                   "interrupts_per_io": 0}
            echo = job(**one)
            one_way = {key: value for key, value in echo.items() if key != "latency_ns"}
            samples.append(sample(name, number, [echo, {**echo, "qd": 32}], "echo 64"))
            samples.append(sample(name, number, [{**one_way, "net": "out"}], "out 64"))
            samples.append(sample(name, number, [{**one_way, "net": "in", "rate": 5000}], "in 64"))
    found = results_of(names, samples, "tools/compare net")
    parsed = net_options.parse_net(["--frames", "64", "--in-rates", "5000"])
    found["settings"] = {**net.settings_of(parsed), "wait": "poll", "rounds": 2, "runtime_ms": 300}
    found["targets"] = [{"name": target(kind).name, "text": target(kind).text} for kind in net.KINDS]
    return found


class Output(unittest.TestCase):
    def test_the_table(self):
        text = net_table.markdown(results())
        for words in ("# Networks beside each other", "one pair of queues, completions by poll",
                      "## echo 64: 64-byte frames", "## out 64", "## in 64", "| 32 under way ",
                      "| 5,000 a second "):
            self.assertIn(words, text)
        # k a second, ratio, p50, p99, CPU, less vCPU, kicks and exits of 1,000.
        self.assertRegex(text, r"\| \*\*Ringside default\*\* +\| +2\.05 ±2% \| +1\.00 \| 2\.00 ±0% \| "
                               r"5\.00 ±0% \| 9\.00 ±0% \| +4\.00 ±0% \| 0\.50 ±0% \| 2\.00 ±0% \|")
        self.assertRegex(text, r"\| QEMU 10\.0 +\| +1\.02 ±2% \| +0\.50 ")
        self.assertIn("| ceiling, beside a busy thread |", text)

    def test_results_are_known_by_their_settings_and_drawn(self):
        status, text = drawn(results(), "net.svg")
        self.assertEqual(status, 0)
        for words in ("Ringside default", "ceiling, beside a busy thread", "in 64, 5,000 a second",
                      "thousand a second"):
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
