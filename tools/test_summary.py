#!/usr/bin/env python3
"""Adds up a test run: what took how long, what was skipped and why, what failed, and one closing
line.

Reads, from the directory given, NAME.xml (CTest's JUnit file), NAME/*.xml (GoogleTest's own,
one a test program, which count each test), NAME.failed (something failed as a whole), and
stages.txt with lines "STAGE: seconds passed, of processors in programs, of processors in the kernel".
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree

SLOWEST = 10  # Tests that are named with their time.


class Summary:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []
        self.retried = []
        self.took = []  # (seconds, test)

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
            output = (case.findtext("system-out") or "").splitlines()
            self.took.append((float(case.get("time") or 0), f"{preset}: {name}"))
            if status == "fail" and not programs.get(name, False):
                self.failed.append(f"{preset}: {name}: crashed, ran out of time, or failed")
            elif status in ("notrun", "disabled"):
                reason = output[-1] if output else "not run, see the log above"
                self.skipped.append(f"{preset}: {name}: {reason}")
            elif status == "run" and name not in programs:
                self.passed += 1
                self.retried += [f"{name}: {line}" for line in output if line.startswith("try ")]


def stage_table(path):
    """Yields the lines: a column of seconds by the clock, one of processors' seconds."""
    rows = []
    for line in path.read_text().splitlines():
        name, _, numbers = line.rpartition(": ")
        seconds, user, system = map(float, numbers.split())
        rows.append((name, seconds, user + system))
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    yield f"{'stage':16}{'seconds':>9}{'of processors':>15}"
    for name, seconds, busy in rows:
        yield f"{name:16}{seconds:9.0f}{busy:15.0f}"


def main():
    results = pathlib.Path(sys.argv[1])
    summary = Summary()
    for path in sorted(results.glob("*.xml")):
        summary.add_preset(path)
    for path in sorted(results.glob("*.failed")):
        if not any(name.startswith(f"{path.stem}:") for name in summary.failed):
            summary.failed.append(f"{path.stem}: failed as a whole, see the log above")

    if (results / "stages.txt").exists():
        print("\n".join(stage_table(results / "stages.txt")))
    slowest = sorted(summary.took, reverse=True)[:SLOWEST]
    print("slowest: " + ", ".join(f"{name} {seconds:.0f} s" for seconds, name in slowest))
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
