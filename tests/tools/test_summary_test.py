#!/usr/bin/python3
"""What tools/test says at its end."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

_PROGRAM = Path(__file__).resolve().parents[2] / "tools" / "test_summary.py"

RELEASE = """<testsuite>
<testcase name="good_test" status="run" time="1.6"/>
<testcase name="bad_test" status="fail" time="12.4"><system-out/></testcase>
<testcase name="lab_boot" status="run" time="3"><system-out>try 1: no prompt
</system-out></testcase>
<testcase name="lab_more" status="notrun" time="0"><system-out>looks
there is no package</system-out></testcase>
</testsuite>"""
GOOD = """<testsuites><testsuite>
<testcase name="One" classname="A" status="run"/>
<testcase name="Two" classname="A" status="run"><skipped>file.cc:1
there is no /dev/kvm</skipped></testcase>
<testcase name="DISABLED_Three" classname="A" status="notrun"/>
</testsuite></testsuites>"""
BAD = """<testsuites><testsuite>
<testcase name="One" classname="B" status="run"><failure/></testcase>
</testsuite></testsuites>"""
STAGES = "lab download: 0.4 0.3 0.0\nrelease build: 200.2 390.0 10.4\n"


class Run(unittest.TestCase):
    def summary(self, **files):
        """The status and the lines for a directory with these files: `a__b_xml` is a/b.xml."""
        with tempfile.TemporaryDirectory() as directory:
            for name, text in files.items():
                path = Path(directory) / ".".join(name.replace("__", "/").rsplit("_", 1))
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            done = subprocess.run([_PROGRAM, directory], capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def test_all_that_is_to_be_known(self):
        status, lines = self.summary(release_xml=RELEASE, release__good_test_xml=GOOD,
                                     release__bad_test_xml=BAD, stages_txt=STAGES, tidy_failed="")
        self.assertEqual(status, 1)
        self.assertEqual(lines, [
            "stage             seconds  of processors",
            "lab download            0              0",
            "release build         200            400",
            "all                   201            401",
            "slowest: release: bad_test 12 s, release: lab_boot 3 s, release: good_test 2 s, "
            "release: lab_more 0 s",
            "passed only after: lab_boot: try 1: no prompt",
            "skipped: release: A.Two: there is no /dev/kvm",
            "skipped: release: A.DISABLED_Three: disabled in the source",
            "skipped: release: lab_more: there is no package",
            "FAILED: release: B.One",
            "FAILED: tidy: failed as a whole, see the log above",
            "2 passed, 2 failed, 3 skipped"])

    def test_a_program_that_crashes_has_failed(self):
        status, lines = self.summary(release_xml=RELEASE, release__good_test_xml=GOOD)
        self.assertEqual(status, 1)
        self.assertIn("FAILED: release: bad_test: crashed, ran out of time, or failed", lines)

    def test_no_test_is_no_success(self):
        self.assertEqual(self.summary()[0], 1)

    def test_success(self):
        status, lines = self.summary(lab_xml='<testsuite><testcase name="a" status="run"/></testsuite>')
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed, 0 skipped"))


PACKAGES = """packages_build= packages_lab= packages_test=
check_system() { :; }
install_packages() { :; }
"""
# Stands for cmake, ctest, tools/lab and tools/tidy: LACKS names the one that fails.
TOOL = """#!/bin/sh
[ "$(basename "$0")" != "$LACKS" ] || exit 1
echo "$0"
while [ $# -gt 0 ]; do
    [ "$1" != --output-junit ] || echo '<testsuite><testcase name="a" status="run"/></testsuite>' >"$2"
    shift
done
"""


class Stages(unittest.TestCase):
    def lines_without(self, lacks):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            for name in ("bin", "tools", "build"):
                (root / name).mkdir()
            for name in ("test", "test_summary.py"):
                shutil.copy(_PROGRAM.parent / name, root / "tools")
            (root / "tools/packages.sh").write_text(PACKAGES)
            for name in ("bin/cmake", "bin/ctest", "tools/lab", "tools/tidy"):
                (root / name).write_text(TOOL)
                (root / name).chmod(0o755)
            environment = os.environ | {"LACKS": lacks, "PATH": f"{root}/bin:{os.environ['PATH']}"}
            done = subprocess.run([root / "tools/test"], env=environment, capture_output=True,
                                  text=True, check=False)
        self.assertEqual(done.returncode, 1 if lacks else 0, done.stderr)
        return done.stdout.splitlines()

    def test_without_the_lab_the_rest_is_run_and_added_up(self):
        lines = self.lines_without("lab")
        self.assertIn("FAILED: lab download: failed as a whole, see the log above", lines)
        self.assertEqual(lines[-1], "3 passed, 1 failed, 0 skipped")

    def test_with_it_there_is_one_stage_more(self):
        self.assertEqual(self.lines_without("")[-1], "4 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
