#!/usr/bin/python3
"""tools/powercut on records that are made here: which images it makes, and that it finds what is lost."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import shlex
import struct
import tempfile
import unittest
from pathlib import Path

from powercutkit.image import Image
from powercutkit.record import DISCARD, FLUSH, WRITE, ZEROES, Problem, read_record
from powercutkit.replay import Replay, changing_points, flush_points

_PROGRAM = Path(__file__).resolve().parents[2] / "tools" / "powercut"
BLOCK = 512
BLOCKS = 16


def load():
    loader = importlib.machinery.SourceFileLoader("powercut", str(_PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("powercut", loader))
    loader.exec_module(module)
    return module


powercut = load()


class Writer:
    """A record, as faults/record_format.h has it."""

    def __init__(self):
        self.bytes = struct.pack("<8sIIQI36x", b"RSWRITES", 1, 64, BLOCKS * BLOCK, BLOCK)
        self.number = 0
        self.begun = {}

    def entry(self, kind, op, number, offset=0, length=0, flags=0, result=0, data=b""):
        self.bytes += struct.pack("<IBBHQQQqiI", 0x59525452, kind, op, flags, number, offset, length,
                                  0, result, 0) + data

    def begin(self, op, block=0, blocks=0, letter="", durable=False):
        self.number += 1
        self.begun[self.number] = op
        data = letter.encode() * (blocks * BLOCK) if op == WRITE else b""
        self.entry(1, op, self.number, block * BLOCK, blocks * BLOCK, int(durable), data=data)
        return self.number

    def end(self, number, result=0):
        self.entry(2, self.begun[number], number, result=result)

    def write(self, block, letter, blocks=1, durable=False, result=0):
        number = self.begin(WRITE, block, blocks, letter, durable)
        self.end(number, result)
        return number

    def flush(self, result=0):
        self.end(self.begin(FLUSH), result)


class PowercutTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.writer = Writer()

    def record_path(self):
        path = self.directory / "record"
        path.write_bytes(self.writer.bytes)
        return str(path)

    def replay(self, point=None):
        record = read_record(self.record_path())
        image = Image(self.directory / "image", record.disk_bytes)
        self.addCleanup(image.close)
        replay = Replay(record, image)
        replay.go_to(len(record.entries) if point is None else point)
        return replay

    def letters(self, replay=None, path=None):
        """A letter for each block: '-' is zeroes, '?' several."""
        content = Path(path or replay.image.path).read_bytes()
        result = ""
        for at in range(0, len(content), BLOCK):
            block = set(content[at:at + BLOCK])
            result += "?" if len(block) > 1 else chr(block.pop()) if block != {0} else "-"
        return result.rstrip("-")

    def images(self, replay, **options):
        options = {"seed": 1, "randoms": 0, **options}
        found = {}
        for subset in replay.subsets(**options):
            replay.apply(subset)
            found[subset.name] = self.letters(replay)
            replay.image.undo()
        return found

    def run_tool(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = powercut.main([str(word) for word in words])
        return status, out.getvalue(), err.getvalue()


class ReplayTest(PowercutTest):
    def test_what_is_not_flushed_is_there_or_not(self):
        self.writer.write(0, "a")
        self.writer.flush()
        b = self.writer.write(1, "b")
        c = self.writer.begin(WRITE, 2, 1, "c")
        self.assertEqual(self.images(self.replay()), {"none": "a", "all": "abc", f"only-{b}": "ab",
                                                      f"only-{c}": "a-c"})
        self.assertEqual(self.images(self.replay(4)), {"none": "a"})
        self.assertEqual(self.images(self.replay(3)), {"none": "", "all": "a"},
                         "the flush has only begun")

    def test_a_flush_covers_what_had_ended_before_it_began(self):
        early = self.writer.begin(WRITE, 0, 1, "a")
        late = self.writer.begin(WRITE, 1, 1, "b")
        self.writer.end(early)
        flush = self.writer.begin(FLUSH)
        self.writer.end(late)
        self.writer.end(flush)
        self.assertEqual(self.images(self.replay()), {"none": "a", "all": "ab"})

    def test_a_flush_that_fails_covers_nothing(self):
        self.writer.write(0, "a")
        self.writer.flush(result=-5)
        self.assertEqual(self.images(self.replay()), {"none": "", "all": "a"})
        self.writer.flush()
        self.assertEqual(self.images(self.replay()), {"none": "a"})

    def test_a_durable_write_is_there_once_it_has_ended(self):
        number = self.writer.begin(WRITE, 0, 1, "a", durable=True)
        self.assertEqual(self.images(self.replay()), {"none": "", "all": "a"})
        self.writer.end(number)
        self.assertEqual(self.images(self.replay()), {"none": "a"})

    def test_an_older_write_never_comes_over_a_newer_one(self):
        self.writer.write(0, "a", blocks=3)
        self.writer.write(1, "b", durable=True)
        self.assertEqual(self.images(self.replay()), {"none": "-b", "all": "aba"})
        self.writer.flush()
        self.assertEqual(self.images(self.replay()), {"none": "aba"})

    def test_a_write_that_failed_may_be_there_until_a_flush(self):
        self.writer.write(0, "a", result=-5)
        self.assertEqual(self.images(self.replay()), {"none": "", "all": "a"})
        self.writer.flush()
        self.assertEqual(self.images(self.replay()), {"none": ""})

    def test_zeroes_and_discards_are_writes(self):
        self.writer.write(0, "a", blocks=4)
        self.writer.flush()
        self.writer.end(self.writer.begin(ZEROES, 1, 1))
        self.writer.end(self.writer.begin(DISCARD, 3, 1))
        self.assertEqual(self.images(self.replay()), {"none": "aaaa", "all": "a-a", "only-3": "a-aa",
                                                      "only-4": "aaa"})

    def test_random_subsets_are_the_seeds(self):
        for block in range(BLOCKS):
            self.writer.write(block, "x")
        replay = self.replay()
        first = self.images(replay, randoms=20, most_singles=2)
        self.assertEqual(first, self.images(replay, randoms=20, most_singles=2))
        self.assertNotEqual(first, self.images(replay, randoms=20, most_singles=2, seed=2))
        self.assertEqual(sum(name.startswith("only-") for name in first), 2)
        self.assertEqual(len(set(first.values())), len(first), "none is there twice")
        counts = {image.count("x") for image in first.values()}
        self.assertGreater(len(counts), 6)

    def test_torn_writes_have_some_of_their_blocks(self):
        self.writer.write(0, "x", blocks=BLOCKS)
        images = self.images(self.replay(), randoms=20, torn=True).values()
        self.assertTrue(any(2 < image.count("x") < BLOCKS for image in images))
        images = self.images(self.replay(), randoms=20).values()
        self.assertEqual({image.count("x") for image in images}, {0, BLOCKS})

    def test_points_are_where_other_images_begin(self):
        self.writer.write(0, "a")
        self.writer.flush()
        self.writer.write(1, "b", durable=True)
        record = read_record(self.record_path())
        self.assertEqual(changing_points(record), [0, 1, 4, 5, 6])
        self.assertEqual(flush_points(record), [4])


class RecordTest(PowercutTest):
    def test_one_that_was_cut_off_ends_with_its_last_whole_entry(self):
        self.writer.write(0, "a")
        whole = len(self.writer.bytes)
        self.writer.write(1, "b")
        for length in (whole + 1, whole + 48, whole + 48 + BLOCK - 1):
            self.writer.bytes, kept = self.writer.bytes[:length], self.writer.bytes
            record = read_record(self.record_path())
            self.assertEqual((len(record.entries), record.cut_off), (2, True), length)
            self.writer.bytes = kept

    def test_one_that_has_ended_says_so(self):
        self.writer.entry(3, 0, 0)
        self.assertTrue(read_record(self.record_path()).ended_early)

    def test_what_is_no_record_is_refused_in_one_line(self):
        good = self.writer.bytes
        broken = {b"": "shorter than", b"x" * 64: "no record", good[:8] + b"\2" + good[9:]: "version 2",
                  good + b"x" * 48: "broken at byte 64",
                  good + struct.pack("<IBBHQQQqiI", 0x59525452, 2, 1, 0, 1, 0, 0, 0, 0, 0): "never began",
                  good + struct.pack("<IBBHQQQqiI", 0x59525452, 1, 1, 0, 1, BLOCKS * BLOCK, BLOCK,
                                     0, 0, 0): "beyond the disk's end"}
        for content, fault in broken.items():
            self.writer.bytes = content
            with self.assertRaisesRegex(Problem, fault):
                read_record(self.record_path())


class ToolTest(PowercutTest):
    """A program writes 'd', and once that is flushed the mark 'm', which says that it is there."""

    CHECK = ["--check", "sh -c 'cut -c 513 {} | grep -qv m || head -c 1 {} | grep -q d'", "--jobs", 2]

    def marks(self, with_flush):
        for _ in range(3):
            self.writer.write(0, "d")
            if with_flush:
                self.writer.flush()
            self.writer.write(1, "m")
            self.writer.flush()
            self.writer.write(1, "n", durable=True)
            self.writer.write(0, "o", durable=True)

    def test_a_flush_that_is_not_there_is_found(self):
        self.marks(with_flush=True)
        status, out, _ = self.run_tool(self.record_path(), *self.CHECK)
        self.assertEqual((status, "0 failed" in out), (0, True), out)
        self.writer = Writer()
        self.marks(with_flush=False)
        status, out, _ = self.run_tool(self.record_path(), *self.CHECK)
        self.assertEqual(status, 1)
        self.assertRegex(out, r"FAILED at point 3, only-2, with 1 of 2 unflushed writes")
        again = next(line for line in out.splitlines() if line.startswith("  again: "))
        words = shlex.split(again.split(": ", 1)[1].replace("FILE", str(self.directory / "kept")))
        self.assertEqual(words[0], "tools/powercut")
        status, out, _ = self.run_tool(*words[1:])
        self.assertEqual((status, out.startswith("FAILED: ")), (1, True))
        self.assertEqual(self.letters(path=self.directory / "kept"), "-m")

    def test_json_has_all_of_it(self):
        self.marks(with_flush=False)
        status, out, _ = self.run_tool(self.record_path(), *self.CHECK, "--json", "--subsets", 0)
        result = json.loads(out)
        self.assertEqual(status, 1)
        self.assertEqual((result["writes"], result["flushes"], result["points_left"]), (12, 3, 0))
        self.assertEqual(result["points"], 22)
        self.assertEqual({failure["subset"] for failure in result["failures"]},
                         {"only-2", "only-7", "only-12"})

    def test_the_check_knows_where_it_is(self):
        self.marks(with_flush=True)
        check = f"sh -c 'echo $POWERCUT_POINT $POWERCUT_FLUSHES {{}} >>{self.directory}/seen'"
        status, out, _ = self.run_tool(self.record_path(), "--check", check, "--points", "flushes",
                                       "--subsets", 0, "--jobs", 1)
        self.assertEqual(status, 0, out)
        seen = [line.split()[:2] for line in (self.directory / "seen").read_text().splitlines()]
        self.assertEqual(seen[0], ["4", "1"])
        self.assertEqual([flushes for _, flushes in seen], ["1", "2", "3", "4", "5", "6"])

    def test_a_check_may_change_its_copy(self):
        self.marks(with_flush=True)
        spoil = "sh -c 'cmp -n 1 {} /dev/zero || test $(head -c 1 {}) != s; echo s >{}'"
        self.assertEqual(self.run_tool(self.record_path(), "--check", spoil, "--scratch")[0], 0)

    def test_the_image_at_the_end(self):
        before = self.directory / "before"
        before.write_bytes(b"i" * BLOCKS * BLOCK)
        self.marks(with_flush=True)
        kept = self.directory / "kept"
        status, _, _ = self.run_tool(self.record_path(), "--image", before, "--only", "end:all",
                                     "--keep", kept)
        self.assertEqual(status, 0)
        self.assertEqual(self.letters(path=kept), "on" + "i" * (BLOCKS - 2))
        self.assertEqual(self.letters(path=before), "i" * BLOCKS, "it was copied")

    def test_random_points_are_the_seeds_and_time_has_an_end(self):
        self.marks(with_flush=True)
        points = [self.run_tool(self.record_path(), "--check", "echo {}", "--points", 5, "--seed", seed,
                                "--json")[1] for seed in (1, 1, 2)]
        images = [json.loads(text)["images"] for text in points]
        self.assertEqual(images[0], images[1])
        status, out, _ = self.run_tool(self.record_path(), "--check", "echo {}", "--time-limit", 0)
        self.assertEqual(status, 3)
        self.assertIn("points left", out)

    def test_a_check_that_never_ends_has_failed(self):
        status, out, _ = self.run_tool(self.record_path(), "--check", "tail -f {}", "--check-timeout",
                                       0.1)
        self.assertEqual(status, 1)
        self.assertIn("no end after 0.1 s", out)

    def test_what_makes_no_sense_is_told_in_one_line(self):
        record = self.record_path()
        small = self.directory / "small"
        small.write_bytes(b"1")
        for words, fault in (([record], "nothing to do"), ([record, "--check", "true"], "has no {}"),
                             ([record, "--check", "a{}", "--points", "x"], "--points x is unknown"),
                             ([record, "--check", "a{}", "--only", "9:all"], "is no image"),
                             ([record, "--check", "a{}", "--only", "0:one-1"], "no subset 'one-1'"),
                             ([record, "--check", "/nowhere/a {}"], "cannot run the check"),
                             ([record, "--check", "a{}", "--keep", "k"], "--keep is about one"),
                             ([record, "--check", "a{}", "--image", small], "has 1 bytes"),
                             ([record, "--check", "a{}", "--jobs", "0"], "--jobs is 1 or more"),
                             (["/nowhere/record", "--check", "a{}"], "No such file"),
                             ([record, "--nonsense"], "see tools/powercut --help")):
            status, _, err = self.run_tool(*words)
            self.assertEqual((status, err.count("\n")), (2, 1), err)
            self.assertIn(fault, err)

    def test_a_list_of_what_happened(self):
        self.writer.write(3, "a", durable=True)
        self.writer.flush(result=-5)
        _, out, _ = self.run_tool(self.record_path(), "--list")
        self.assertEqual([" ".join(line.split()) for line in out.splitlines()],
                         ["1 1: write 1536+512 durable begins", "2 1: write 1536+512 durable ends, 0",
                          "3 2: flush begins", "4 2: flush ends, -5"])


if __name__ == "__main__":
    unittest.main()
