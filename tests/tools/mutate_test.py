#!/usr/bin/python3
"""tools/mutate on a tree whose builds and tests are shell scripts; and that its list fits the product."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import tempfile
import time
import types
import unittest
from pathlib import Path
from unittest import mock

_PROGRAM = Path(__file__).resolve().parents[2] / "tools" / "mutate"


def load():
    loader = importlib.machinery.SourceFileLoader("mutate", str(_PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
    with mock.patch.dict("sys.modules", {"mutate": module}):
        loader.exec_module(module)
    return module


mutate = load()

# Passes while the product's only line is as it was, and says of each test what GoogleTest does.
TEST = """#!/bin/sh
case "$(cat {file})" in
    good) echo '[       OK ] Suite.Test (0 ms)' ;;
    hangs) sleep 60 ;;
    skips) echo '[  SKIPPED ] Suite.Test (0 ms)' ;;
    misses) echo '[       OK ] Suite.Test (0 ms)' ;;
    *) echo '[  FAILED  ] Suite.Test (0 ms)'; exit 1 ;;
esac
"""


class FakeTree(mutate.Tree):
    def __init__(self, root):
        super().__init__(0, types.SimpleNamespace(timeout=1, build_timeout=1, jobs=1))
        self.root = root
        self.builds = 0
        (root / "build/release/tests").mkdir(parents=True)
        (root / "product").write_text("good\n")
        test = root / "build/release/tests/unit_test"
        test.write_text(TEST.format(file=root / "product"))
        test.chmod(0o755)

    def build(self, mutant):
        self.builds += 1
        return "error: no such word" if "broken" in (self.root / "product").read_text() else ""


def mutant(new, old="good", **fields):
    return mutate.Mutant(name="it", file="product", old=old, new=new, target="unit_test", **fields)


class Judging(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.tree = FakeTree(Path(directory.name))

    def judge(self, it):
        outcome, detail = self.tree.judge(it)
        self.assertEqual((self.tree.root / it.file).read_text(), self.product)
        return outcome, detail

    product = "good\n"

    def test_one_that_a_test_notices_is_killed_by_it(self):
        self.assertEqual(self.judge(mutant("bad")), (mutate.KILLED, "Suite.Test"))

    def test_one_that_no_test_notices_survives(self):
        self.assertEqual(self.judge(mutant("misses"))[0], mutate.SURVIVED)

    def test_one_with_which_its_tests_do_not_end_is_killed(self):
        self.assertEqual(self.judge(mutant("hangs"))[0], mutate.HUNG)

    def test_one_that_does_not_build_is_none(self):
        self.assertEqual(self.judge(mutant("broken")), (mutate.NO_BUILD, "error: no such word"))

    def test_its_place_must_be_there_once(self):
        self.assertEqual(self.judge(mutant("bad", old="bad"))[0], mutate.NO_TEXT)
        outcome, detail = self.judge(mutant("bad", old="o"))
        self.assertEqual((outcome, detail),
                         (mutate.NO_TEXT, "product has the old text 2 times"))

    def test_tests_that_fail_without_it_say_nothing(self):
        self.product = "bad\n"
        (self.tree.root / "product").write_text(self.product)
        outcome, detail = self.judge(mutant("good", old="bad"))
        self.assertEqual(outcome, mutate.NO_TEST)
        self.assertIn("Suite.Test", detail)

    def test_tests_that_do_not_run_say_nothing(self):
        self.product = "skips\n"
        (self.tree.root / "product").write_text(self.product)
        self.assertEqual(self.judge(mutant("bad", old="skips"))[0], mutate.NO_TEST)

    def test_without_mutants_the_same_tests_run_once(self):
        for new in ("bad", "misses", "worse"):
            self.judge(mutant(new))
        self.assertEqual(self.tree.builds, 4)


class TheList(unittest.TestCase):
    def refused(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            with self.assertRaises(mutate.UsageError) as caught:
                mutate.load(Path(file.name))
        return str(caught.exception)

    def test_what_is_wrong_with_it_is_named(self):
        entry = '[[mutant]]\nname = "a"\nfile = "f"\nold = "x"\nnew = "y"\n'
        self.assertIn("more than one mutant a", self.refused((entry + 'target = "t"\n') * 2))
        self.assertIn("a target or a ctest", self.refused(entry))
        self.assertIn("['tset'] are no fields", self.refused(entry + 'tset = "t"\n'))
        self.assertIn("['old'] are missing",
                      self.refused(entry.replace('old = "x"\n', 'target = "t"\n')))
        self.assertIn("changes nothing",
                      self.refused(entry.replace('"y"', '"x"') + 'target = "t"\n'))
        self.assertIn("cannot read", self.refused("[mutant"))

    def test_patterns_choose_by_name_and_by_file(self):
        mutants = mutate.load(mutate.MUTANTS)
        by_file = mutate.chosen(mutants, ["boot/bzimage.cc"])
        self.assertTrue(by_file)
        self.assertEqual(by_file, mutate.chosen(mutants, ["bzimage-*"]))
        with self.assertRaises(mutate.UsageError):
            mutate.chosen(mutants, ["no such thing"])

    # A file that changes takes its mutants along.
    def test_each_place_is_there_exactly_once(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertTrue(mutate.check(mutate.load(mutate.MUTANTS)), errors.getvalue())


CMAKE = "#!/bin/sh\nmkdir -p build/release && : >build/release/build.ninja\n"
# With the mutant it does not end.
CTEST = """#!/bin/sh
[ "$(cat product)" != bad ] || { echo $$ >started; exec sleep 60; }
"""
LIST = """[[mutant]]
name = "it"
file = "product"
old = "good"
new = "bad"
ctest = "it"
"""


class Ending(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        self.copy = self.root / "build/mutate/0"
        (self.root / "tools").mkdir()
        (self.root / "bin").mkdir()
        shutil.copy(_PROGRAM, self.root / "tools/mutate")
        (self.root / "tools/mutants.toml").write_text(LIST)
        (self.root / "product").write_text("good\n")
        (self.root / ".gitignore").write_text("build\n")
        for name, text in (("cmake", CMAKE), ("ctest", CTEST)):
            (self.root / "bin" / name).write_text(text)
            (self.root / "bin" / name).chmod(0o755)
        subprocess.run(["git", "init", "-q", self.root], check=True)

    def start(self):
        environment = os.environ | {"PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        process = subprocess.Popen([self.root / "tools/mutate"], env=environment, text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for cleanup in (process.stderr.close, process.wait, process.terminate):  # the last first
            self.addCleanup(cleanup)
        return process

    def test_ended_by_a_signal_it_mends_what_is_broken_and_ends_what_it_started(self):
        process = self.start()
        started = self.copy / "started"
        for _ in range(1000):
            if started.exists() and started.read_text():
                break
            time.sleep(0.01)
        self.assertEqual((self.copy / "product").read_text(), "bad\n")
        second = self.start()
        _, errors = second.communicate(timeout=60)
        self.assertEqual(second.returncode, 2)
        self.assertIn("another tools/mutate is at work", errors)
        process.terminate()
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual((self.copy / "product").read_text(), "good\n")
        with self.assertRaises(ProcessLookupError):
            os.kill(int(started.read_text()), 0)


if __name__ == "__main__":
    unittest.main()
