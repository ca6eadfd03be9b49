#!/usr/bin/python3
"""The poll simulator from end to end: the command as its user meets it, and the plots of what it
wrote."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

_SIMULATOR = os.environ["RINGSIDE_POLL_SIMULATOR"]
_PLOT = os.environ["RINGSIDE_POLL_PLOT"]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)


class PollSimulatorTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def assert_bad_input(self, done, *texts):
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)

    def simulate(self, *options):
        path = self.directory / "result.json"
        done = run(_SIMULATOR, "--waits", "200", "--json", str(path), *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path, json.loads(path.read_text())

    def test_a_recorded_trace_is_replayed_alone_unless_families_are_named(self):
        trace = self.directory / "t.csv"
        trace.write_text("# ringside poll trace 1\n0,1000,idle,52000,1,2\n")
        _, alone = self.simulate("--trace", str(trace))
        self.assertEqual([family["name"] for family in alone["hosts"][0]["families"]], ["recorded"])
        _, both = self.simulate("--trace", str(trace), "--family", "poisson")
        self.assertEqual([family["name"] for family in both["hosts"][0]["families"]],
                         ["poisson", "recorded"])

    def test_the_same_seed_gives_the_same_figures(self):
        _, first = self.simulate("--seed", "7")
        _, again = self.simulate("--seed", "7")
        _, other = self.simulate("--seed", "8")
        self.assertEqual(first, again)
        self.assertNotEqual(first["hosts"], other["hosts"])

    def test_errors_are_one_line(self):
        self.assert_bad_input(run(_SIMULATOR, "--famly", "x"), "did you mean '--family'?")
        self.assert_bad_input(run(_SIMULATOR, "--check", "--price", "2"), "--price does not go")
        self.assert_bad_input(run(_SIMULATOR, "--waits", "x"), "--waits")
        self.assert_bad_input(run(_SIMULATOR, "--trace", "/nonexistent"), "cannot open")
        self.assert_bad_input(run(_SIMULATOR, "--json", "/nonexistent/x"), "cannot write")

    def test_plots_are_drawn_and_drawn_alike(self):
        path, _ = self.simulate("--sweep", "--family", "closed-loop,poisson")
        names = ["relative", "front-bare-metal", "front-slow"]
        drawn = []
        for _ in range(2):
            done = run(_PLOT, str(path))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(min((self.directory / f"{name}.png").stat().st_size
                                   for name in names), 10_000)
            drawn.append([(self.directory / f"{name}.svg").read_text() for name in names])
        self.assertEqual(drawn[0], drawn[1])
        for plot in drawn[0]:
            for text in ("closed-loop", "grow-shrink", "waking takes 6 us" if plot != drawn[0][2]
                         else "waking takes 25 us"):
                self.assertIn(text, plot)
        self.assertIn("fixed, 0 to 128 us", drawn[0][1])

    def test_a_plot_needs_no_sweep(self):
        path, _ = self.simulate("--family", "poisson", "--policies", "cost", "--host", "slow")
        self.assertEqual(run(_PLOT, str(path)).returncode, 0)
        self.assertNotIn("0 to 128 us", (self.directory / "front-slow.svg").read_text())

    def test_a_plot_of_something_else_is_refused(self):
        other = self.directory / "other.json"
        self.assert_bad_input(run(_PLOT, str(other)), "cannot read", "No such file")
        for text, fault in (("{", "is no JSON"), ("[]", "is no simulation"), ("{}", "is no simul"),
                            ('{"format":"ringside poll simulation","version":2}', "version 2")):
            other.write_text(text)
            self.assert_bad_input(run(_PLOT, str(other)), str(other), fault)


if __name__ == "__main__":
    unittest.main()
