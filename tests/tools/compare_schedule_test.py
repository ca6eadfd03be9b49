#!/usr/bin/python3
"""tools/compare without a VMM: the order of its runs, its rules about noise and failures."""

import json
import unittest
from types import SimpleNamespace
from unittest import mock

from compare_contestant import CACHED, DISK, ShellContestant, job
from comparekit import guest_run, options, quiet, schedule
from comparekit.common import BadInput, MeasureError


def schedule_of(found, **changes):
    chosen = {"noise_limit": 5, "accept_noise": False, **changes}
    settings = {"rw": "randread", "rwmix": 70, "bs": "4k", "depths": (1, 2), "wait": "poll",
                "rounds": 2, "rates": changes.get("rates", ()), "runtime_ms": 100, "apart": None,
                "open_loops": changes.get("open_loops", ("open",)),
                "thinking": changes.get("thinking", [])}
    progress = mock.Mock()
    return schedule.Schedule(found, [DISK], settings, SimpleNamespace(**chosen), progress)


class Rounds(unittest.TestCase):
    def setUp(self):
        self.boots, self.words = [], []
        self.before, self.during = [], []
        share = lambda shares: shares.pop(0) if shares else 0.0
        for name, replacement in (
                ("guest_run.run", self.boot), ("targets.Target.prepare", lambda _: None),
                ("cpu.wait_for_quiet", lambda *_: share(self.before) or None),
                ("cpu.MachineUse", lambda _: SimpleNamespace(others=lambda: share(self.during)))):
            patcher = mock.patch(f"comparekit.{name}", replacement)
            patcher.start()
            self.addCleanup(patcher.stop)
        self.a, self.b = ShellContestant("", "Ringside"), ShellContestant("", "other")

    def boot(self, contestant, _target, words, _seconds, _apart=None):
        verify = "verify=1" in words
        self.boots.append((contestant.name, verify))
        self.words += words
        if contestant.name == "broken" and not verify:
            raise MeasureError("fell over")
        rates = next((word[5:].split(",") for word in words if word.startswith("rate=")), None)
        if rates:
            return [guest_run.parse_job(json.dumps(job(rate=int(rate)))) for rate in rates], {}
        return [guest_run.parse_job(json.dumps(job(qd=depth))) for depth in (1, 2)], {}

    def test_rounds_are_interleaved_after_a_check_of_each(self):
        rounds = schedule_of([self.a, self.b])
        rounds.run()
        self.assertEqual(self.boots, [("Ringside", True), ("other", True)]
                         + [("Ringside", False), ("other", False)] * 2)
        self.assertEqual([rounds.failures, rounds.noise], [[], []])

    def test_users_think_in_the_closed_loop_alone(self):
        schedule_of([self.a], thinking=["think=20us"], rates=("100",)).run()
        self.assertEqual(self.words.count("think=20us"), 2)  # rounds

    def test_what_needs_no_check_gets_none(self):
        self.b.checked = False
        schedule_of([self.a, self.b]).run()
        self.assertEqual(self.boots[:2], [("Ringside", True), ("Ringside", False)])

    def test_a_failed_contestant_is_named_and_left_out(self):
        rounds = schedule_of([ShellContestant("", "broken"), self.a])
        rounds.run()
        self.assertEqual(rounds.failures, ["broken on disk, round 1: fell over"])
        self.assertEqual(len(self.boots), 2 + 1 + 2)
        self.assertEqual({sample["contestant"] for sample in rounds.samples}, {"Ringside"})

    def test_a_failure_of_a_noisy_run_is_repeated_first(self):
        self.during = [0.3, 0.3]
        rounds = schedule_of([ShellContestant("", "broken")])
        rounds.run()
        self.assertEqual(len(self.boots), 1 + 3)
        self.assertEqual(len(rounds.failures), 1)

    def test_a_noisy_run_is_repeated_and_forgotten(self):
        self.during = [0.3]
        rounds = schedule_of([self.a])
        rounds.run()
        self.assertEqual(len(self.boots), 1 + 3)
        self.assertEqual((rounds.noise, rounds.samples[0]["noisy"]), ([], None))

    def test_noise_that_stays_is_marked(self):
        self.before, self.during = [0.2], [0.3, 0.4]
        rounds = schedule_of([self.a])
        rounds.run()
        self.assertEqual(len(self.boots), 1 + 3 + 1)
        self.assertRegex(rounds.noise[0], "round 1/2 disk: Ringside: others used 40%")
        self.assertEqual(len(rounds.samples), 2)

    def test_a_machine_that_is_never_quiet_is_not_waited_for_again_and_again(self):
        self.before = [0.9] * 100
        with mock.patch.object(quiet, "_ALL_PATIENCE_S", 0.3):
            rounds = schedule_of([self.a])
            rounds.run()
        self.assertEqual((len(self.boots), len(rounds.noise)), (1 + 2 + 1, 2))

    def test_accepted_noise_is_marked_too_and_nothing_repeated(self):
        self.before = [0.9]
        rounds = schedule_of([self.a], accept_noise=True)
        rounds.run()
        self.assertEqual((len(self.boots), len(rounds.noise)), (1 + 2, 1))

    def test_a_ring_with_less_room_is_asked_for_less(self):
        self.a.max_depth = 85
        rounds = schedule_of([self.a], rates=("500",))
        rounds._settings["depths"] = (1, 2, 128)
        rounds.run()
        self.assertEqual(rounds.failures, [])
        self.assertEqual([word for word in self.words if word.startswith("qd=")],
                         ["qd=8", "qd=1,2", "qd=1,2", "qd=85", "qd=85"])

    def test_jobs_that_are_missing_are_a_failure(self):
        rounds = schedule_of([self.a])
        rounds._settings["depths"] = (1, 2, 4)
        rounds.run()
        self.assertIn("2 jobs done, 3 asked for", rounds.failures[0])

    def test_percents_of_rates_are_of_the_best_closed_loop(self):
        rounds = schedule_of([self.a], rates=("500", "50%"))
        rounds.run()
        opened = [sample for sample in rounds.samples if sample["loop"] == "open"]
        self.assertEqual([[found["rate"] for found in sample["jobs"]] for sample in opened],
                         [[500, 1000]] * 2)

    def test_each_open_loop_has_its_rounds_and_arrivals(self):
        rounds = schedule_of([self.a], rates=("500",), open_loops=("open", "periodic"))
        rounds.run()
        self.assertEqual([(sample["loop"], sample["round"]) for sample in rounds.samples],
                         [(loop, number) for loop in ("closed", "open", "periodic")
                          for number in range(2)])
        self.assertEqual([word for word in self.words if word.startswith("arrival=")],
                         ["arrival=poisson"] * 2 + ["arrival=periodic"] * 2)


class Choice(unittest.TestCase):
    def test_names_by_their_beginning_or_a_pattern(self):
        found = [ShellContestant("", name) for name in ("Ringside", "QEMU 7.2 native no poll",
                                                        "QEMU 7.2 io_uring no poll")]
        names = lambda only, skip: [one.name for one in schedule.choose(found, only, skip, (1,))]
        self.assertEqual(len(names([], [])), 3)
        self.assertEqual(names(["qemu*native"], []), ["QEMU 7.2 native no poll"])
        self.assertEqual(names([], ["QEMU"]), ["Ringside"])

    def test_the_runtime_fits_the_time_that_was_given(self):
        settings = {"depths": (1, 2, 4, 8), "rounds": 3, "rates": ()}
        found = [ShellContestant("", str(number)) for number in range(6)]
        runtime = schedule.runtime_ms(found, [DISK, CACHED], settings, 2)
        settings["runtime_ms"] = runtime
        self.assertAlmostEqual(schedule.estimate_s(found, [DISK, CACHED], settings), 120, delta=1)

    def test_each_open_loop_takes_its_time(self):
        settings = {"depths": (1,), "rounds": 10, "rates": ("1", "2"), "runtime_ms": 950}
        found = [ShellContestant("", "one")]
        estimates = []
        for loops in ((), ("open",), ("open", "periodic")):
            settings["open_loops"] = loops
            estimates.append(schedule.estimate_s(found, [DISK], settings))
        one, two = estimates[1] - estimates[0], estimates[2] - estimates[1]
        self.assertAlmostEqual(one, two)
        self.assertGreater(one, 10 * 2 * (0.95 + schedule.WARMUP_MS / 1000))

    def test_bad_options_name_the_value(self):
        for arguments, message in ((["--targets", "disc"], "'disc' is none of"),
                                   (["--depths", "0"], "'0' is no number"),
                                   (["--runtime", "5"], "'5' is no time"),
                                   (["--ringside-poll", "fixed"], "'fixed' is none of never"),
                                   (["--rates", "x%"], "'x'"), (["--rw", "trim"], "trim")):
            with self.subTest(arguments), self.assertRaisesRegex(BadInput, message):
                options.parse(arguments)


if __name__ == "__main__":
    unittest.main()
