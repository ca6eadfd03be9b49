#!/usr/bin/python3
"""How polling is compared, without a VMM: the ways to wait; which points tools/compare sweep has,
and what it makes of its samples."""

import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from comparekit import __main__ as main
from comparekit import contestants, iothread, options, summary, sweep, sweep_plots, sweep_table
from comparekit.common import BadInput, MeasureError
from compare_samples import host, job, results_of, sample, word_after

def find_points(*arguments, qemu=True):
    """What the command line asks for, on a host with or without QEMU."""
    with host(qemu):
        return sweep.find_points(options.parse_sweep(list(arguments)))


def results(loops=("closed",)):
    """Two rounds of three limits. IOPS are 10,000, 1,000 more for each microsecond of the limit,
    and 200 more in the second round."""
    points, _ = find_points("--limits", "0,2,8", "--qemu-aio", "native")
    samples = [sample(point.name, number, loop=loop,
                      jobs=[job(rate=500 * (loop == "open"), host_cpu_share=0.1 * point.limit_us,
                                iops=10_000 + 1000 * point.limit_us + 200 * number)])
               for loop in loops for number in range(2) for point in points]
    found = results_of([(point.name, point.family) for point in points], samples,
                       "tools/compare sweep")
    return sweep.complete(found, points)


class WaysToWait(unittest.TestCase):
    def test_each_that_the_comparison_runs_has_a_name_and_is_asked_for(self):
        ways = {"never": ("Ringside no poll", "poll=never"),
                "grow-shrink": ("Ringside poll 32us", "poll=grow-shrink,max=32us"),
                "cost": ("Ringside poll cost", "poll=cost"),
                "always": ("Ringside poll always", "poll=always")}
        self.assertEqual(options.parse([]).ringside_poll, tuple(ways))
        for policy, expected in ways.items():
            with mock.patch("comparekit.contestants.first_line", return_value="ringside 0"):
                one = contestants.Ringside("ringside", "auto", iothread.POLLING[policy])
            self.assertEqual((one.name, word_after(one, "--iothread")), expected)


class Points(unittest.TestCase):
    def test_curves_alternate_and_limits_rise(self):
        points, missing = find_points("--limits", "32,0")
        self.assertEqual([(point.curve, point.limit_us) for point in points],
                         [(curve, limit) for limit in (0, 32)
                          for curve in ("Ringside fixed", "Ringside grow-shrink",
                                        "QEMU 10.0 io_uring", "QEMU 10.0 native")])
        self.assertEqual(missing, {})

    def test_limits_are_asked_for_in_each_ones_unit(self):
        points, _ = find_points("--limits", "8", "--qemu-aio", "native")
        fixed, adaptive, qemu = points
        self.assertEqual(word_after(fixed, "--iothread"), "poll=fixed,max=8us")
        self.assertEqual(word_after(adaptive, "--iothread"), "poll=grow-shrink,max=8us")
        self.assertIn("poll-max-ns=8000", word_after(qemu, "-object"))

    def test_names_tell_all_points_apart(self):
        points, _ = find_points("--ringside-aio", "auto,native")
        names = [point.name for point in points]
        self.assertEqual(len(set(names)), 9 * (4 + 2))
        self.assertIn("Ringside native poll fixed 128us", names)

    def test_one_point_of_a_curve_is_checked(self):
        points, _ = find_points("--limits", "0,1,2")
        self.assertEqual({point.limit_us for point in points if point.checked}, {2})

    def test_without_qemu_it_is_missing_and_the_rest_is_swept(self):
        points, missing = find_points(qemu=False)
        self.assertEqual({point.family for point in points}, {"Ringside"})
        self.assertIn("QEMU", missing)

    def test_bad_options_name_the_value(self):
        for arguments, message in ((["--limits", "1,x"], "'x'.*tools/compare sweep --help"),
                                   (["--ringside-poll", "always"], "'always' is none of fixed"),
                                   (["--qemu-aio", "threads"], "'threads' is none of io_uring")):
            with self.subTest(arguments), self.assertRaisesRegex(BadInput, message):
                options.parse_sweep(arguments)


class Output(unittest.TestCase):
    def test_a_curve_has_a_point_a_limit(self):
        rows = summary.sweep_rows(results(), "disk", "closed", 1)
        self.assertEqual([row.name for row in rows],
                         ["Ringside fixed", "Ringside grow-shrink", "QEMU 10.0 native"])
        self.assertEqual({limit: point["iops"].median for limit, point in rows[0].points.items()},
                         {0: 10_100, 2: 12_100, 8: 18_100})

    def test_one_noisy_point_marks_its_curve(self):
        found = results()
        found["samples"][0]["noisy"] = "others used 40%"
        noisy = [row.noisy for row in summary.sweep_rows(found, "disk", "closed", 1)]
        self.assertEqual(noisy, [True, False, False])

    def test_the_table(self):
        text = sweep_table.markdown(results())
        for words in ("# How long to poll", "## disk, 1 in flight: file on ext4",
                      "tools/compare sweep", "commit abc"):
            self.assertIn(words, text)
        self.assertRegex(text, r"\| kIOPS, by limit +\| 0 us \| 2 us \| 8 us \|")
        self.assertRegex(text, r"\| \*\*Ringside fixed\*\* +\| 10\.1 \| 12\.1 \| 18\.1 \|")
        self.assertRegex(text, r"\| QEMU 10\.0 native +\| 0\.00 \| 20\.0 \| 80\.0 \|")

    def test_a_point_that_failed_is_left_out(self):
        found = results()
        found["samples"] = [sample for sample in found["samples"]
                            if sample["contestant"] != "QEMU 10.0 native poll 2us"]
        self.assertRegex(sweep_table.terminal(found),
                         r"\| QEMU 10\.0 native +\| +10\.1 \| +- \| +18\.1 \|")

    def test_the_open_loop_is_of_latency(self):
        text = sweep_table.terminal(results(loops=("closed", "open")))
        opened = text[text.index("disk, 500 arrivals a second"):]
        self.assertRegex(opened, r"\| p99 latency, us, by limit")
        self.assertRegex(opened, r"\| QEMU 10\.0 native +\| +5\.00 ")
        self.assertNotIn("kIOPS", opened)

    def test_plots(self):
        for loops, names in ((("closed",), {"sweep"}),
                             (("closed", "open"), {"sweep", "sweep-open-loop"})):
            with self.subTest(loops), tempfile.TemporaryDirectory() as directory:
                sweep_plots.draw(results(loops), Path(directory))
                written = {path.name: path for path in Path(directory).iterdir()}
                self.assertEqual(set(written), {name + suffix for name in names
                                                for suffix in (".svg", ".png")})
                for name in names:
                    text = written[f"{name}.svg"].read_text()
                    for words in ("Ringside grow-shrink", "QEMU 10.0 native", "file on ext4",
                                  "polling limit, us", "% of a processor"):
                        self.assertIn(words, text, name)


class Command(unittest.TestCase):
    def test_report_draws_a_sweep_again(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "results.json"
            path.write_text(json.dumps(results()))
            with mock.patch("builtins.print"):
                self.assertEqual(main.report([str(path)]), 0)
            self.assertIn("# How long to poll", (Path(directory) / "table.md").read_text())
            self.assertTrue((Path(directory) / "sweep.svg").exists())

    def finish(self, found, *arguments):
        with tempfile.TemporaryDirectory() as directory, mock.patch("builtins.print"):
            return main.finish(found, options.parse_sweep(["--out", directory, *arguments]))

    def test_nothing_measured_is_a_failure(self):
        with self.assertRaisesRegex(MeasureError, "nothing was measured"):
            self.finish({**results(), "samples": []}, "--accept-noise")

    def test_the_exit_status_tells_failures_and_noise(self):
        self.assertEqual(self.finish(results()), 0)
        self.assertEqual(self.finish({**results(), "failures": ["QEMU: hangs"]}), 1)
        self.assertEqual(self.finish({**results(), "noise": ["others used 40%"]}), 1)
        self.assertEqual(self.finish({**results(), "noise": ["others"]}, "--accept-noise"), 0)


if __name__ == "__main__":
    unittest.main()
