#!/usr/bin/python3
"""What tools/compare makes of its samples: medians and ratios, tables, plots; and its files."""

import copy
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from comparekit import plots, summary, table, targets
from comparekit.common import BadInput
from compare_samples import job, results_of, sample


def results():
    """Two rounds, three contestants, the host by two engines."""
    names = [("Ringside no poll", "Ringside"), ("Ringside poll 32us", "Ringside"),
             ("QEMU 7.2 native no poll", "QEMU"), ("host psync", "host"),
             ("host libaio", "host")]
    speed = {"Ringside no poll": 25_000, "Ringside poll 32us": 100_000,
             "QEMU 7.2 native no poll": 50_000, "host psync": 300_000,
             "host libaio": 200_000}
    samples = []
    for number in range(2):
        for name, family in names:
            jobs = [job(qd=depth, iops=speed[name] * depth + 2000 * number, cpu_ns_per_io=9000,
                        host_cpu_ns_per_io=4000)
                    for depth in (1, 32) if depth == 1 or name != "host psync"]
            if family == "host":
                for one in jobs:
                    del one["host_cpu_ns_per_io"]
            samples.append(sample(name, number, jobs))
    found = results_of(names, samples, "tools/compare --x")
    found["settings"]["depths"] = [1, 32]
    found["missing"] = {"crosvm": "build it"}
    for contestant in found["contestants"]:
        contestant["version"] = f"{contestant['family']} 1"
        contestant["note"] = "reads by hand" * (contestant["family"] == "QEMU")
    return found


def noisy_results():
    found = results()
    found["samples"][2]["noisy"] = "others used 40%"
    found["noise"] = ["round 1/2 disk: QEMU: others used 40%"]
    found["failures"] = ["crosvm on disk, verify pass: hangs\n    | last words"]
    return found


class Summary(unittest.TestCase):
    def test_median_and_spread(self):
        found = summary.figures([{**job(), "iops": value} for value in (90, 100, 130)])["iops"]
        self.assertEqual((found.median, found.low, found.high, found.spread), (100, 90, 130, 0.2))

    def test_the_host_is_its_best_engine_at_each_depth(self):
        rows = summary.rows(results(), "disk")
        self.assertEqual([row.name for row in rows], ["Ringside no poll", "Ringside poll 32us",
                                                      "QEMU 7.2 native no poll", "host"])
        self.assertEqual([rows[-1].points[depth].by for depth in (1, 32)],
                         ["host psync", "host libaio"])

    def test_ratios(self):
        _, ours, qemu, _ = summary.rows(results(), "disk")
        self.assertAlmostEqual(summary.ratio(qemu, ours, 1), 51 / 101)
        self.assertIsNone(summary.ratio(qemu, ours, 64))
        self.assertIsNone(summary.ratio(qemu, None, 1))

    def test_ratios_are_to_ringside_that_polls_as_long_as_qemu(self):
        reference = lambda *names: summary.reference(
            {"contestants": [{"name": name, "family": name.split()[0]} for name in names]})
        self.assertEqual(reference("QEMU 7.2 native poll 32us", "Ringside no poll",
                                   "Ringside poll 32us"), "Ringside poll 32us")
        self.assertEqual(reference("Ringside no poll", "Ringside native poll 32us"),
                         "Ringside native poll 32us")
        self.assertEqual(reference("Ringside", "QEMU 7.2"), "Ringside")
        self.assertIsNone(reference("QEMU 7.2"))


class Output(unittest.TestCase):
    def test_the_table(self):
        text = table.markdown(results())
        self.assertRegex(text, r"\| QEMU 7\.2 native no poll +\| +51\.0 \| +±2% \| +0\.50 "
                               r"\| +2\.00 \| +5\.00 \| +9\.00 \| +4\.00 \| +0\.500 \|")
        self.assertRegex(text, r"\| \*\*Ringside poll 32us\*\* +\| +101 \(100\.\.102\) ")
        self.assertRegex(text, r"\| \*\*Ringside no poll\*\* +\| +26\.0 \| +±4% \| +0\.26 ")
        for words in ("Some CPU", "tools/compare --x", "2026-01-02", "missing: crosvm: build it",
                      "psync at 1; libaio at 32", "commit abc", "- QEMU reads by hand."):
            self.assertIn(words, text)
        self.assertNotIn("!", text)

    def test_the_head_says_to_whom_ratios_are(self):
        head = "Ratios are to Ringside poll 32us, which polls as long as QEMU does by default."
        for text in (table.markdown(results()), table.terminal(results())):
            self.assertIn(head, text.split("\n| ")[0])
        found = results()
        found["contestants"].pop(1)
        self.assertIn("Ratios are to Ringside no poll.", table.markdown(found))

    def test_what_went_wrong_is_marked(self):
        for text in (table.markdown(noisy_results()), table.terminal(noisy_results())):
            self.assertIn("| QEMU 7.2 native no poll! ", text)
            self.assertIn("**NOISY** 1 of 10 runs", text)
            self.assertIn("**FAILED** crosvm on disk, verify pass: hangs", text)

    def test_nothing_measured_still_gives_a_table(self):
        found = {**noisy_results(), "samples": []}
        self.assertIn("FAILED", table.terminal(found))

    def test_every_line_fits_a_terminal(self):
        tables = [line for line in table.terminal(results()).splitlines() if line.startswith("|")]
        self.assertLessEqual(max(map(len, tables)), 110)

    def test_plots(self):
        opened = results()
        opened["samples"] += [{**copy.deepcopy(sample), "loop": "open",
                               "jobs": [{**job(rate=rate), "iops": rate} for rate in (1000, 2000)]}
                              for sample in opened["samples"] if "host" not in sample["contestant"]]
        for found, names in ((results(), {"iops", "latency", "cpu"}),
                             (opened, {"iops", "latency", "cpu", "open-loop"})):
            with tempfile.TemporaryDirectory() as directory:
                plots.draw(found, Path(directory))
                written = {path.name: path for path in Path(directory).iterdir()}
                self.assertEqual(set(written), {name + suffix for name in names
                                                for suffix in (".svg", ".png")})
                for name in names:
                    text = written[f"{name}.svg"].read_text()
                    for words in ("Ringside no poll", "Ringside poll 32us",
                                  "QEMU 7.2 native no poll", "file on ext4"):
                        self.assertIn(words, text, name)

    def test_a_plot_is_small_and_says_the_same(self):
        small = plots.small_svg('<svg>\n <metadata>\n 1\n </metadata>\n <g id="a">\n  <path d="M 1.26 '
                                '-3.14159\nL 2 7.25\n" style="opacity: 0.12"/>\n </g>\n '
                                '<text>Linux 6.18.44,  0.25</text>\n</svg>\n')
        self.assertEqual(small, '<svg>\n<g id="a"><path d="M 1.3 -3.1 L 2 7.2 " style="opacity: 0.12"'
                                '/></g><text>Linux 6.18.44,  0.25</text></svg>\n')

    def test_a_plot_says_that_the_machine_was_noisy(self):
        with tempfile.TemporaryDirectory() as directory:
            plots.draw(noisy_results(), Path(directory))
            self.assertIn("NOISY", (Path(directory) / "iops.svg").read_text())


class Files(unittest.TestCase):
    def test_every_block_is_written(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "x"
            targets.write_file(path, 8 << 20)
            self.assertEqual(path.stat().st_size, 8 << 20)
            self.assertGreaterEqual(path.stat().st_blocks * 512, 8 << 20)

    def test_they_are_gone_afterwards(self):
        with tempfile.TemporaryDirectory() as directory, \
                mock.patch.object(targets, "GIB", 4 << 20), \
                mock.patch.object(targets, "file_system", return_value="ext4"):
            with targets.Targets(["disk"], directory) as found:
                self.assertTrue(Path(found[0].path).exists())
            self.assertEqual(list(Path(directory).iterdir()), [])

    def test_a_disk_that_is_none_is_refused(self):
        with mock.patch.object(targets, "file_system", return_value="tmpfs"), \
                self.assertRaisesRegex(BadInput, "not on a disk"):
            targets.Targets(["disk"], "/nowhere").__enter__()


if __name__ == "__main__":
    unittest.main()
