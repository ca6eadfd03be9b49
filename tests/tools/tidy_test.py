#!/usr/bin/python3
"""Which sources tools/tidy looks at, in a checkout made for it."""

import importlib.machinery
import importlib.util
import subprocess
import tempfile
import unittest
from pathlib import Path

_PROGRAM = Path(__file__).resolve().parents[2] / "tools" / "tidy"


def load():
    loader = importlib.machinery.SourceFileLoader("tidy", str(_PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", loader))
    loader.exec_module(module)
    return module


tidy = load()

FILES = {
    "base/fd.h": "", "base/fd.cc": '#include "base/fd.h"\n',
    "include/ringside/log.h": "", "include/ringside/machine.h": '#include "ringside/log.h"\n',
    "vmm/machine.cc": '#include "ringside/machine.h"\n',
    "poll/ring.h": '#include <vector>\n#include "base/fd.h"\n',
    "poll/ring.cc": '#include "poll/ring.h"\n',
    "boot/dsdt.asl": "", "boot/acpi.cc": '#include "boot/dsdt.h"\n',
    "command/main.cc": '  #  include "poll/ring.h"\n',
    "tests/fd_test.cc": '#include "base/fd.h"\n', "docs/a.md": "", ".clang-tidy": "",
    "cmake/a.cmake": "", "tests/CMakeLists.txt": "", "CMakeLists.txt": ""}
ALL = ["base/fd.cc", "boot/acpi.cc", "command/main.cc", "poll/ring.cc", "vmm/machine.cc"]


class Choice(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.checkout = Path(directory.name)
        for name, text in FILES.items():
            self.write(name, text)
        self.git("init", "--quiet")
        self.write(tidy.BASE_FILE, self.commit())

    def git(self, *arguments):
        return subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=self.checkout,
            capture_output=True, text=True, check=True).stdout

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=x")
        return self.git("rev-parse", "HEAD")

    def write(self, name, text):
        path = self.checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def change(self, name):
        self.write(name, FILES.get(name, "") + "int changed;\n")

    def assert_chosen(self, expected, everything=False):
        self.assertEqual(tidy.chosen(self.checkout, everything)[0], expected)

    def test_a_folder_need_not_be_named(self):
        self.write("overlay/new.cc", "")
        self.write("benchmarks/new.cc", "")
        self.assert_chosen(["overlay/new.cc"])

    def test_nothing_has_changed(self):
        self.assert_chosen([])
        self.assert_chosen(ALL, everything=True)

    def test_comments_are_not_looked_at(self):
        code = '#include "base/fd.h"\nconst char* url = "http://a";  // one\n/* two */ int a;\n'
        self.write("base/fd.cc", code)
        self.write(tidy.BASE_FILE, self.commit())
        self.write("base/fd.cc", code.replace("one", "1 \" one").replace("/* two */", "// two\n"))
        self.assert_chosen([])
        for other in (code.replace("//a", "//b"), code.replace("int a", "int b"),
                      code.replace("one", "NOLINT"), code.replace(" two ", "two=")):
            self.write("base/fd.cc", other)
            self.assert_chosen(["base/fd.cc"])

    def test_a_source_is_looked_at_alone(self):
        self.change("poll/ring.cc")
        self.assert_chosen(["poll/ring.cc"])
        self.commit()
        self.assert_chosen(["poll/ring.cc"])

    def test_a_header_brings_those_that_include_it(self):
        self.change("poll/ring.h")
        self.assert_chosen(["command/main.cc", "poll/ring.cc"])

    def test_a_public_header_is_included_from_a_folder_of_its_own(self):
        self.change("include/ringside/log.h")
        self.assert_chosen(["vmm/machine.cc"])

    def test_a_header_brings_those_that_include_it_through_others(self):
        self.change("base/fd.h")
        self.assert_chosen(["base/fd.cc", "command/main.cc", "poll/ring.cc"])

    def test_a_generated_header_is_its_source(self):
        self.change("boot/dsdt.asl")
        self.assert_chosen(["boot/acpi.cc"])

    def test_files_come_and_go(self):
        self.change("block/new.cc")
        (self.checkout / "base/fd.cc").unlink()
        self.assert_chosen(["block/new.cc"])

    def test_what_is_no_product_source_counts_for_nothing(self):
        for name in ("docs/a.md", "tests/fd_test.cc", "tests/CMakeLists.txt"):
            self.change(name)
        self.assert_chosen([])

    def test_what_every_source_is_read_by_brings_all(self):
        for name in (".clang-tidy", "cmake/a.cmake", "CMakeLists.txt", "tools/tidy"):
            with self.subTest(name):
                self.write(name, "changed")
                self.assert_chosen(ALL)
                self.git("clean", "--quiet", "--force", "-d", "tools")
                self.git("checkout", "--quiet", "--", ".clang-tidy", "cmake", "CMakeLists.txt")

    def test_a_commit_that_is_not_here_brings_all(self):
        for text in ("", "\n", "0" * 40 + "\n", "nonsense\n"):
            with self.subTest(text):
                self.write(tidy.BASE_FILE, text)
                self.assert_chosen(ALL)
        (self.checkout / tidy.BASE_FILE).unlink()
        self.assert_chosen(ALL)

    def test_a_shallow_clone_brings_all(self):
        self.commit()
        with tempfile.TemporaryDirectory() as directory:
            clone = Path(directory) / "clone"
            self.git("clone", "--quiet", "--depth=1", f"file://{self.checkout}", str(clone))
            self.assertEqual(tidy.chosen(clone, False)[0], ALL)


if __name__ == "__main__":
    unittest.main()
