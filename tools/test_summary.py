#!/usr/bin/env python3
"""Adds up a test run: what was skipped and why, what failed, and one closing line.

Reads, from the directory given, NAME.xml (CTest's JUnit file), NAME/*.xml (GoogleTest's own,
one a test program, which count each test), and NAME.failed (something failed as a whole).
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


class Summary:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []
        self.retried = []

    def add_program(self, preset, path):
        """A GoogleTest program. Returns whether any of its tests failed."""
        failed_before = len(self.failed)
        for case in ElementTree.parse(path).iter("testcase"):
            name = f"{preset}: {case.get('classname')}.{case.get('name')}"
            skipped = case.find("skipped")
            if case.find("failure") is not None:
                self.failed.append(name)
            elif skipped is not None:
                self.skipped.append(f"{name}: {(skipped.text or 'no reason').splitlines()[-1]}")
            elif case.get("status") == "notrun":
                self.skipped.append(f"{name}: disabled in the source")
            else:
                self.passed += 1
        return len(self.failed) > failed_before

    def add_preset(self, path):
        preset = path.stem
        programs = {program.stem: self.add_program(preset, program)
                    for program in sorted((path.parent / preset).glob("*.xml"))}
        for case in ElementTree.parse(path).iter("testcase"):
            name, status = case.get("name"), case.get("status")
            if status == "fail" and not programs.get(name, False):
                self.failed.append(f"{preset}: {name}: crashed, ran out of time, or failed")
            elif status in ("notrun", "disabled"):
                self.skipped.append(f"{preset}: {name}: not run, see the log above")
            elif status == "run" and name not in programs:
                self.passed += 1
                output = (case.findtext("system-out") or "").splitlines()
                self.retried += [f"{name}: {line}" for line in output if line.startswith("try ")]


def main():
    results = pathlib.Path(sys.argv[1])
    summary = Summary()
    for path in sorted(results.glob("*.xml")):
        summary.add_preset(path)
    for path in sorted(results.glob("*.failed")):
        if not any(name.startswith(f"{path.stem}:") for name in summary.failed):
            summary.failed.append(f"{path.stem}: failed as a whole, see the log above")

    for line in summary.retried:
        print(f"passed only after: {line}")
    for line in summary.skipped:
        print(f"skipped: {line}")
    for line in summary.failed:
        print(f"FAILED: {line}")
    print(f"{summary.passed} passed, {len(summary.failed)} failed, {len(summary.skipped)} skipped")
    return 1 if summary.failed or summary.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
