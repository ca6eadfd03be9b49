#!/usr/bin/python3
"""Think time, a depth-1 job beside, and Ringside's ways to signal, in tools/compare."""

import json
import unittest
from unittest import mock

from comparekit import contestants, guest_run, options, summary, table
from comparekit.common import BadInput, MeasureError
from compare_samples import host, job, results_of, sample, word_after


def guest_line(**changes):
    """What the guest prints of a job, with 1000 I/Os a second in it."""
    line = {"job": 0, "qd": 4, "rate": 0, "ios": 1000, "errors": 0, "mismatches": 0, "kicks": 600,
            "interrupts": 300, "runtime_ns": 1_000_000_000, "latency_ns": {"p50": 1}}
    return json.dumps({**line, **changes})


class CommandLine(unittest.TestCase):
    def thinking(self, *arguments):
        return options.parse(list(arguments)).thinking

    def test_the_guest_gets_its_words(self):
        self.assertEqual(self.thinking(), [])
        self.assertEqual(self.thinking("--think", "20us"), ["think=20us"])
        self.assertEqual(self.thinking("--think-serial", "2ms", "--depth1"),
                         ["think-serial=2ms", "depth1=1"])

    def test_what_cannot_be_is_refused(self):
        for arguments in (("--think", "20"), ("--think", "2s"), ("--think-serial", "1us;x"),
                          ("--think", "1us", "--think-serial", "1us")):
            with self.assertRaises(BadInput, msg=arguments):
                self.thinking(*arguments)

    def test_ways_to_signal_are_rows_that_poll_by_default(self):
        with host(qemu=False), mock.patch.object(contestants, "help_text", return_value=""):
            found, _ = contestants.find_contestants(
                options.parse(["--ringside-poll", "never", "--ringside-signal", "early,batched"]))
        ours = [one for one in found if one.family == summary.OURS]
        self.assertEqual([one.name for one in ours],
                         ["Ringside no poll", "Ringside signal early", "Ringside signal batched"])
        self.assertEqual(word_after(ours[2], "--iothread"), "signal=batched")

    def test_an_unknown_way_is_refused(self):
        with self.assertRaisesRegex(BadInput, "'late' is none of early, batched"):
            options.parse(["--ringside-signal", "late"])


class Jobs(unittest.TestCase):
    def test_what_both_jobs_used_is_of_both(self):
        parsed = guest_run.parse_job(guest_line(depth1={"ios": 500, "latency_ns": {"p50": 2}}))
        self.assertEqual((parsed["iops"], parsed["depth1"]["iops"]), (1000, 500))
        self.assertAlmostEqual(parsed["kicks_per_io"], 0.4)
        self.assertAlmostEqual(parsed["interrupts_per_io"], 0.2)

    def test_a_depth1_job_that_did_nothing_is_refused(self):
        with self.assertRaisesRegex(MeasureError, "depth-1 job"):
            guest_run.parse_job(guest_line(depth1={"ios": 0, "latency_ns": {"p50": 0}}))


class Table(unittest.TestCase):
    def results(self):
        names = [("Ringside signal early", "Ringside"), ("Ringside signal batched", "Ringside")]
        beside = lambda iops: {"iops": iops, "latency_ns": {"p50": 70_000, "p99": 90_000}}
        found = results_of(names, [sample(name, 0, [job(depth1=beside(iops), interrupts_per_io=0.25)])
                                   for (name, _), iops in zip(names, (4000, 1000))], "tools/compare")
        found["settings"]["thinking"] = ["think-serial=20us", "depth1=1"]
        return found

    def test_the_depth1_job_has_a_table_of_its_own(self):
        text = table.markdown(self.results())
        self.assertIn("completions by poll, think-serial=20us, depth1=1; medians", text)
        self.assertRegex(text, r"1 beside 1 +\| kIOPS")
        self.assertRegex(text, r"batched\*\* +\| +1\.00 \| +±0% \| +0\.25 \| 70\.0 \| 90\.0 \|\n")

    def test_interrupts_have_a_column(self):
        self.assertRegex(table.terminal(self.results()), r"\| +0\.500 \| +0\.250 \|\n")

    def test_without_one_there_is_no_such_table(self):
        found = self.results()
        for one in found["samples"]:
            del one["jobs"][0]["depth1"]
        self.assertNotIn("beside 1", table.markdown(found))


if __name__ == "__main__":
    unittest.main()
