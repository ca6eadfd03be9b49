#!/usr/bin/python3
"""How tools/compare front judges a policy, without a VMM: the front and the distance from it, which
points there are, and what is made of their samples."""

import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from comparekit import __main__ as main
from comparekit import front, front_plots, front_table, options, targets
from comparekit.common import BadInput
from compare_samples import DISK, host, job, results_of, sample, word_after

SLOW = targets.Target("null", "null backend", "", 1 << 30, False, 20)


def find_points(*arguments, qemu=True):
    """What the command line asks for, on a host with or without QEMU."""
    with host(qemu):
        return front.find_points(options.parse_front(list(arguments)))


class Front(unittest.TestCase):
    def test_it_is_those_that_no_other_beats(self):
        spots = [(50, 30), (10, 100), (60, 30), (20, 60), (30, 70), (90, 20), (10, 110)]
        self.assertEqual(front.pareto(spots), [(10, 100), (20, 60), (50, 30), (90, 20)])
        self.assertEqual(front.pareto([]), [])

    def test_between_its_spots_it_is_straight_and_beyond_them_level(self):
        line = [(10, 100), (20, 60), (40, 50)]
        for cpu, latency in ((5, 100), (10, 100), (15, 80), (20, 60), (25, 57.5), (40, 50),
                             (90, 50)):
            self.assertAlmostEqual(front.latency_at(line, cpu), latency, msg=cpu)

    def test_the_distance_is_the_latency_at_the_same_processor_time(self):
        line = [(10, 100), (20, 60)]
        for spot, latency, on_front in (((15, 80), 1.0, True), ((15, 40), 0.5, True),
                                        ((15, 83.9), 1.04875, True), ((15, 84.1), 1.05125, False),
                                        ((5, 120), 1.2, False), ((5, 104), 1.04, True)):
            found = front.distance(line, spot)
            self.assertAlmostEqual(found.latency, latency, msg=spot)
            self.assertEqual((found.cpu, found.is_on_front), (1.0, on_front), spot)

    def test_beyond_its_end_processor_time_counts_as_well(self):
        line = [(10, 100), (20, 60)]
        for spot, latency, cpu, on_front in (((20.8, 60), 1.0, 1.04, True),
                                             ((21.2, 60), 1.0, 1.06, False),
                                             ((30, 58), 58 / 60, 1.5, False),
                                             ((30, 30), 0.5, 1.5, True),
                                             ((20.8, 64), 64 / 60, 1.04, False)):
            found = front.distance(line, spot)
            self.assertAlmostEqual(found.latency, latency, msg=spot)
            self.assertAlmostEqual(found.cpu, cpu, msg=spot)
            self.assertEqual(found.is_on_front, on_front, spot)

    def test_a_front_of_one_spot_that_costs_nothing(self):
        self.assertEqual(front.distance([(0, 50)], (10, 50)), front.Distance(1.0, 1.0))

    def test_the_share_of_nevers_extra_latency(self):
        self.assertAlmostEqual(front.share_of_extra(40, never=60, always=20), 0.5)
        self.assertAlmostEqual(front.share_of_extra(15, never=60, always=20), -0.125)
        self.assertIsNone(front.share_of_extra(40, never=20, always=20))


class Points(unittest.TestCase):
    def test_each_way_to_wait_is_asked_for(self):
        points, missing = find_points("--limits", "1,8", "--price", "0.5,2", "--qemu-aio", "native")
        ways = [("Ringside no poll", "poll=never"),
                ("Ringside poll fixed 1us", "poll=fixed,max=1us"),
                ("Ringside poll fixed 8us", "poll=fixed,max=8us"),
                ("Ringside poll 32us", "poll=grow-shrink,max=32us"),
                ("Ringside poll weighted 32us", "poll=weighted,max=32us"),
                ("Ringside poll cost, price 0.5", "poll=cost,price=0.5"),
                ("Ringside poll cost, price 2", "poll=cost,price=2"),
                ("Ringside poll always", "poll=always")]
        self.assertEqual([(point.name, word_after(point, "--iothread")) for point in points[:-2]],
                         ways)
        self.assertEqual([(point.name, word_after(point, "-object")) for point in points[-2:]],
                         [("QEMU 10.0 native no poll", "iothread,id=t,poll-max-ns=0"),
                          ("QEMU 10.0 native poll 32.8us", "iothread,id=t,poll-max-ns=32768")])
        self.assertEqual(missing, {})

    def test_without_options_there_are_all(self):
        points, _ = find_points()
        self.assertEqual([point.limit_us for point in points if point.policy in ("never", "fixed")],
                         [0, 1, 2, 4, 8, 16, 32, 64, 128])
        self.assertEqual(len(points), 9 + 4 + 4)
        self.assertEqual([len([point for point in points if point.serves(target)])
                          for target in (DISK, SLOW)], [17, 15])

    def test_the_null_backend_takes_its_time_under_qemu_too(self):
        points, _ = find_points("--qemu-aio", "io_uring")
        backend = json.loads(word_after(points[-1], "-blockdev", SLOW))
        self.assertEqual((backend["driver"], backend["latency-ns"]), ("null-co", 20_000))

    def test_one_of_the_fixed_is_checked(self):
        points, _ = find_points()
        self.assertEqual([point.limit_us for point in points
                          if point.policy == "fixed" and point.checked], [128])

    def test_without_qemu_it_is_missing_and_the_rest_is_compared(self):
        points, missing = find_points(qemu=False)
        self.assertEqual({point.family for point in points}, {"Ringside"})
        self.assertIn("QEMU", missing)

    def test_bad_options_name_the_value(self):
        for arguments, message in ((["--limits", "0,1"], "'0'.*tools/compare front --help"),
                                   (["--price", "1,dear"], "'dear' is no price"),
                                   (["--null-latency", "1ms"], "'1ms' is no time like 20us"),
                                   (["--ringside-aio", "auto,native"], "give one")):
            with self.subTest(arguments), self.assertRaisesRegex(BadInput, message):
                options.parse_front(arguments)


# (CPU in percent, mean latency in us) of each policy and limit: the front is (10, 100), (20, 60),
# (50, 30), where 8 us are beaten by 4.
SPOTS = {("never", 0): (10, 100), ("fixed", 2): (20, 60), ("fixed", 4): (50, 30),
         ("fixed", 8): (60, 35), ("grow-shrink", 32): (40, 80), ("cost", None): (35, 44),
         ("always", None): (100, 20), ("", None): (35, 90)}


def results(skip=()):
    """Two rounds, in closed loop and with 1,000 arrivals a second, Poisson's and periodic. In the
    second round all is a tenth slower. Of the arrivals 990 are reached, of the closed loop what its
    latency allows."""
    arguments = ["--limits", "2,4,8", "--qemu-aio", "native"]
    points, _ = find_points(*arguments)
    points = [point for point in points if (point.policy, point.limit_us) in SPOTS
              and point.name != "QEMU 10.0 native no poll" and point.policy not in skip]
    samples = []
    for loop in front.LOOPS:
        for number in range(2):
            for point in points:
                cpu, latency_us = SPOTS[point.policy, point.limit_us]
                latency_ns = 1000 * latency_us * (0.95 if number == 0 else 1.05)
                samples.append(sample(point.name, number, loop=loop, jobs=[
                    job(rate=1000 * (loop != "closed"), host_cpu_share=cpu / 100,
                        iops=990 if loop != "closed" else 1e6 / latency_us,
                        latency_ns={"mean": latency_ns, "p50": 1000, "p99": 2000, "p999": 3000})]))
    found = results_of([(point.name, point.family) for point in points], samples,
                       "tools/compare front")
    return front.complete(found, points, options.parse_front(arguments))


def line_of(text, name):
    """The cells behind the name in the first line of a table that begins with it."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.split("|")[2:-1]]


class Standings(unittest.TestCase):
    def standings(self, found, loop="closed", key=1):
        return {standing.row.name: standing
                for standing in front.standings(found, "disk", loop, key)}

    def test_all_are_placed_beside_the_front(self):
        found = self.standings(results())
        self.assertEqual(len(found), len(SPOTS))
        for name, latency, cpu, extra in (("poll cost, price 1", 44 / 45, 1, 0.3),
                                          ("poll 32us", 2, 1, 0.75), ("no poll", 1, 1, 1),
                                          ("poll always", 2 / 3, 2, 0),
                                          ("poll fixed 8us", 35 / 30, 1.2, 15 / 80)):
            one = found[f"Ringside {name}"]
            for value, expected in ((one.distance.latency, latency), (one.distance.cpu, cpu),
                                    (one.extra, extra)):
                self.assertAlmostEqual(value, expected, msg=name)
        self.assertAlmostEqual(found["Ringside poll cost, price 1"].iops_of_always, 20 / 44)

    def test_without_a_front_there_is_no_distance(self):
        found = self.standings(results(skip=("never", "fixed")))
        cost = found["Ringside poll cost, price 1"]
        self.assertEqual((cost.distance, cost.extra), (None, None))
        self.assertIsNotNone(cost.iops_of_always)

    def test_without_always_there_is_no_share(self):
        cost = self.standings(results(skip=("always",)))["Ringside poll cost, price 1"]
        self.assertEqual((cost.extra, cost.iops_of_always), (None, None))
        self.assertTrue(cost.distance.is_on_front)

    def test_what_has_no_processor_time_is_left_out(self):
        found = results()
        for one in found["samples"]:
            if one["contestant"] == "Ringside poll fixed 4us":
                for of_job in one["jobs"]:
                    del of_job["host_cpu_share"]
        standings = self.standings(found)
        self.assertNotIn("Ringside poll fixed 4us", standings)
        # From (20, 60) to (60, 35), as 8 us are no longer beaten.
        self.assertAlmostEqual(standings["Ringside poll cost, price 1"].distance.latency,
                               44 / (60 - 25 * 15 / 40))


class Output(unittest.TestCase):
    def test_the_verdict_has_a_line_a_load(self):
        text = front_table.terminal(results())
        for load in ("1 in flight", "1,000 arrivals a second, Poisson",
                     "1,000 arrivals a second, periodic"):
            cells = line_of(text, f"disk, {load}")
            self.assertEqual(cells[0], "**Ringside poll cost, price 1**")
            self.assertEqual(cells[1:5], ["35.0", "9.00", "44.0", "±5%"])
            self.assertEqual(cells[7:11], ["0.98", "1.00", "yes", "30%"])

    def test_the_table(self):
        text = front_table.markdown(results())
        for words in ("# Latency against processor time", "## poll=cost beside the front",
                      "## disk, 1 in flight: file on ext4", "tools/compare front", "commit abc",
                      "## disk, 1,000 arrivals a second, periodic: file on ext4"):
            self.assertIn(words, text)
        closed = text[text.index("## disk, 1 in flight"):]
        always = line_of(closed, "**Ringside poll always**")
        self.assertEqual(always[6:9], ["0.67", "2.00", "yes"])
        self.assertEqual(always[9:], ["0%", "50.0", "1.00", "-", "0.50"])
        opened = text[text.index("periodic: file"):]
        qemu = line_of(opened, "QEMU 10.0 native poll 32.8us")
        self.assertEqual(qemu[6:9], ["2.00", "1.00", "no"])
        self.assertEqual(qemu[10:13], ["0.99", "1.00", "0.99"])

    def test_a_noisy_one_is_marked(self):
        found = results()
        found["samples"][0]["noisy"] = "others used 40%"
        self.assertIn("| **Ringside no poll**! ", front_table.markdown(found))

    def test_without_cost_there_is_no_verdict(self):
        self.assertNotIn("beside the front\n", front_table.markdown(results(skip=("cost",))))

    def test_plots(self):
        with tempfile.TemporaryDirectory() as directory:
            front_plots.draw(results(), Path(directory))
            written = {path.name: path for path in Path(directory).iterdir()}
            names = ("front-closed", "front-poisson", "front-periodic")
            self.assertEqual(set(written), {name + suffix for name in names
                                            for suffix in (".svg", ".png")})
            text = written["front-poisson.svg"].read_text()
            for words in ("Ringside poll fixed (limit in us)", "QEMU 10.0 native poll 32.8us",
                          "Ringside poll cost, price 1", ">never<", ">4<", "mean latency, us",
                          "1,000 arrivals a second, Poisson", "% of a processor"):
                self.assertIn(words, text)

    def test_a_load_that_one_target_lacks(self):
        found = results()
        found["targets"].append({"name": "null", "text": "nothing"})
        found["samples"] += [{**one, "target": "null"} for one in found["samples"]
                             if one["loop"] == "closed"]
        with tempfile.TemporaryDirectory() as directory:
            front_plots.draw(found, Path(directory))
        self.assertIn("## null, 1 in flight: nothing", front_table.markdown(found))


class Command(unittest.TestCase):
    def test_report_draws_a_front_again(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "results.json"
            path.write_text(json.dumps(results()))
            with mock.patch("builtins.print"):
                self.assertEqual(main.report([str(path)]), 0)
            self.assertIn("# Latency against processor", (Path(directory) / "table.md").read_text())
            self.assertTrue((Path(directory) / "front-closed.svg").exists())

    def test_it_is_a_subcommand(self):
        with mock.patch("sys.argv", ["compare", "front", "--price", "cheap"]), \
                mock.patch("sys.stderr") as errors, \
                mock.patch("signal.signal"):
            self.assertEqual(main.main(), 2)
        self.assertIn("'cheap' is no price", "".join(call.args[0]
                                                     for call in errors.write.call_args_list))


if __name__ == "__main__":
    unittest.main()
