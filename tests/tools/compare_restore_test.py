#!/usr/bin/python3
"""tools/compare restore without a VMM: what is asked of whom, and what becomes of samples."""

import json
import tempfile
import threading
import unittest
from pathlib import Path
from socket import AF_UNIX, socket
from unittest import mock

from comparekit import restore, restore_contestants, restore_options, restore_table
from comparekit.common import BadInput, MeasureError
from compare_samples import drawn, host, results_of


def find_contestants(*arguments):
    """What the command line asks for, where each program is there and of version 10.0."""
    with host(), mock.patch("comparekit.restore_contestants.first_line", return_value="version 10.0"):
        return restore_contestants.find_contestants(restore_options.parse(list(arguments)))


class Options(unittest.TestCase):
    def test_without_any(self):
        options = restore_options.parse([])
        self.assertEqual(options.memory, (128, 1024, 8192))
        self.assertEqual(options.caches, ("warm", "cold"))

    def test_sizes_are_sorted_and_in_mib(self):
        self.assertEqual(restore_options.parse(["--memory", "2G,64M,2G"]).memory, (64, 2048))

    def test_bad_ones_name_the_value(self):
        for arguments, message in ((["--memory", "16M"], "'16M' is no size of memory.*restore --help"),
                                   (["--memory", "1T"], "'1T'"), (["--saves", "-1"], "'-1'|--saves"),
                                   (["--caches", "warm,hot"], "'hot' is none of warm, cold"),
                                   (["--crosvm", "cr"], "--crosvm")):
            with self.subTest(arguments), self.assertRaisesRegex(BadInput, message):
                restore_options.parse(arguments)


class Contestants(unittest.TestCase):
    def test_all_are_found_and_ours_share_a_snapshot(self):
        found, missing = find_contestants("--firecracker", "fc")
        self.assertEqual([(one.name, one.snapshot) for one in found],
                         [(restore.BARE, "ringside"), (restore.LIBRARY, "ringside"),
                          (restore.FORK, "ringside"), (restore.COMMAND, "ringside"),
                          ("Firecracker", "firecracker")])
        self.assertEqual(list(missing), ["QEMU, Cloud Hypervisor, crosvm"])

    def test_a_program_that_says_nothing_is_told_with_what_it_says(self):
        words = ["/bin/sh", "-c", "echo no room >&2"]
        with self.assertRaisesRegex(MeasureError, "says nothing; it says: no room"):
            with restore_contestants.Spawned(words) as spawned:
                spawned.await_beat()

    def test_what_is_no_beat_is_no_guest(self):
        with restore_contestants.Spawned(["/bin/echo", ".x"]) as spawned:
            self.assertGreater(spawned.await_beat(), 0)
            with self.assertRaisesRegex(MeasureError, "says b'x'"):
                spawned.await_beat()

    def test_what_an_api_refuses_is_told(self):
        ours, theirs = socket_pair()
        with ours, theirs:
            restore_contestants._send(ours, "PUT", "/snapshot/load", {"resume_vm": True})
            asked = theirs.recv(4096).decode()
            self.assertTrue(asked.startswith("PUT /snapshot/load HTTP/1.1\r\n"))
            self.assertEqual(json.loads(asked.partition("\r\n\r\n")[2]), {"resume_vm": True})
            theirs.sendall(b"HTTP/1.1 400 \r\n\r\n{\"fault_message\":\"no file\"}")
            with self.assertRaisesRegex(MeasureError, "no file"):
                restore_contestants._check_answer(ours)
            theirs.sendall(b"HTTP/1.1 204 \r\n\r\n")
            restore_contestants._check_answer(ours)


def socket_pair():
    """One that connects before anybody listens, as a VMM that only starts has it."""
    with tempfile.TemporaryDirectory() as directory, socket(AF_UNIX) as listener:
        path = f"{directory}/vm.sock"
        found = []
        thread = threading.Thread(target=lambda: found.append(restore_contestants._connect(path)))
        thread.start()
        listener.bind(path)
        listener.listen()
        theirs, _ = listener.accept()
        thread.join()
        return found[0], theirs


class Saves(unittest.TestCase):
    def test_a_failed_one_leaves_its_size_alone(self):
        """The others go on."""
        class Fails:
            name, snapshot = "Firecracker", "firecracker"

            def restore(self, _place, _program):
                raise MeasureError("no room")

        class Works(Fails):
            name = restore.BARE

            def restore(self, _place, _program):
                return 1000

        rounds = restore._Rounds([Works(), Fails()], None, Path("/nowhere"),
                                 restore_options.parse(["--accept-noise"]), mock.Mock())
        targets = [restore.Target(128, "warm"), restore.Target(1024, "warm")]
        for number in range(2):
            self.assertEqual([sample["contestant"] for sample in rounds._round(number, targets)],
                             [restore.BARE] * 2)
            self.assertEqual(len(rounds.failures), 2)
        orders = [restore._shuffled(["a", "b", "c"], number) for number in range(100)]
        self.assertEqual(len(set(map(tuple, orders))), 6)
        self.assertEqual(rounds.failures, ["Firecracker with 128M, round 1: no room",
                                           "Firecracker with 1G, round 1: no room"])


def results():
    """Three rounds, each slower than the last by as much for all: the library takes 0.3 ms longer than bare."""
    names = [(restore.BARE, "ceiling"), (restore.LIBRARY, "Ringside"), (restore.COMMAND, "Ringside"),
             ("Firecracker", "Firecracker")]
    samples = [{"target": "128M warm", "contestant": name, "round": number, "noisy": None,
                "ns": round((ms + 0.1 * number) * 1e6)}
               for number in range(3) for (name, _), ms in zip(names, (0.9, 1.2, 2.9, 11.9))]
    found = results_of(names, samples, "tools/compare restore")
    found["settings"] = {"restore": True, "load": "a restore", "rounds": 3, "saved_mib": 128, "written_mib": 64}
    target = restore.Target(128, "warm")
    found["targets"] = [{"name": target.name, "text": target.text}]
    found["saves"] = [{name: 2_000_000 for name in ("pause_ns", "paused_ns", "state_ns", "copy_ns", "disk_ns")}]
    return found


class Output(unittest.TestCase):
    def test_the_table(self):
        text = restore_table.markdown(results())
        self.assertIn("# Restores beside each other", text)
        self.assertRegex(text, r"\| 128M warm \| 1\.00 \| +1\.30 \| +3\.00 \| +12\.00 \| +0\.30 \| +0\.25 \|")
        # p50, p99, spread, beyond bare, ratio.
        self.assertRegex(text, r"\| bare +\| +1\.00 \| +1\.10 \| +±10% \| +- \| +0\.33 \|")
        self.assertRegex(text, r"\| \*\*Ringside library\*\* +\| +1\.30 \| +1\.40 \| +±8% \| +0\.30 \| +0\.43 \|")
        self.assertRegex(text, r"\| the copy of the other memory +\| +2\.00 \|")

    def test_results_are_known_by_their_settings_and_drawn(self):
        status, text = drawn(results(), "restore.svg")
        self.assertEqual(status, 0)
        for words in ("Ringside library", "Firecracker", "128M warm", "ms, median"):
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
