#!/usr/bin/python3
"""Kills `ringside image` a hundred times, and gives the same command again:

  kill_test.py RINGSIDE IMAGE_RIG

A quarter each are commits, applies, diffs and flattens, killed at a random moment of the time that
they take. What was killed leaves nothing that looks finished and is not, and is finished then."""

import filecmp
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RINGSIDE, RIG = (str(Path(word).resolve()) for word in sys.argv[1:3])
EACH = 25
DISK = 12 << 20
SEED = 5


def image(*words):
    """Starts one."""
    return subprocess.Popen([RINGSIDE, "image", *map(str, words)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def must(*words):
    process = image(*words)
    output = process.communicate(timeout=60)[0]
    if process.returncode != 0:
        sys.exit(f"FAIL: {words}: exit status {process.returncode}: {output}")


def scatter(top, seed):
    subprocess.run([RIG, "scatter", top, str(seed)], check=True, timeout=60)


def copy(source, target):
    """With its time, by which a base is known, and its holes."""
    subprocess.run(["cp", "--sparse=always", "--preserve=timestamps", source, target], check=True,
                   timeout=60)


def same(one, other, what):
    if not filecmp.cmp(one, other, shallow=False):
        sys.exit(f"FAIL: {what}: {one.name} and {other.name} differ")


class Scene:
    """A directory with the files as they are before each command."""

    def __init__(self, directory):
        self.start, self.now = directory / "start", directory / "now"
        self.start.mkdir()
        self.now.mkdir()
        # Commands name the base by where it is.
        base, top = self.now / "base", self.now / "top.cow"
        base.write_bytes(random.Random(SEED).randbytes(DISK))
        must("create", "--base", base, top)
        must("create", "--base", base, self.now / "restored.cow")
        for seed in range(1, 9):
            scatter(top, seed)
        must("diff", top, self.now / "b1")
        for seed in range(11, 19):
            scatter(top, seed)
        self.now.rename(self.start)
        self.expected = directory / "expected"
        self.reset()
        must("flatten", "--base", base, top, self.expected)
        self.names = sorted(path.name for path in self.start.iterdir())

    def reset(self):
        shutil.rmtree(self.now, ignore_errors=True)
        self.now.mkdir()
        for path in self.start.iterdir():
            copy(path, self.now / path.name)

    def more_names(self):
        return sorted({path.name for path in self.now.iterdir()} - set(self.names))

    # Each: the command's words; then what has to hold after a kill, and once it is finished.

    def commit(self):
        return ["commit", "--base", self.now / "base", self.now / "top.cow"]

    def after_commit(self):
        same(self.now / "base", self.expected, "commit")

    def apply(self):
        # The second backup is made here, once.
        if not (self.start / "b2").exists():
            must("diff", self.now / "top.cow", self.now / "b2")
            copy(self.now / "b2", self.start / "b2")
            self.names.append("b2")
        return ["apply", "--base", self.now / "base", self.now / "restored.cow", self.now / "b1",
                self.now / "b2"]

    def after_apply(self):
        flat = self.now / "flat"
        must("flatten", "--base", self.now / "base", self.now / "restored.cow", flat)
        same(flat, self.expected, "apply")

    def diff(self):
        return ["diff", self.now / "top.cow", self.now / "new"]

    def diff_killed(self):
        if self.more_names() not in ([], ["new"], ["new.part"]):
            sys.exit(f"FAIL: diff leaves {self.more_names()}")
        if self.more_names() == ["new"]:
            must("check", self.now / "new")

    def after_diff(self):
        if self.more_names() != ["new"]:
            sys.exit(f"FAIL: diff leaves {self.more_names()}")
        must("apply", self.now / "base", self.now / "b1", self.now / "new")
        same(self.now / "base", self.expected, "diff")

    def flatten(self):
        return ["flatten", "--base", self.now / "base", self.now / "top.cow", self.now / "new"]

    def flatten_killed(self):
        if self.more_names() not in ([], ["new"]):
            sys.exit(f"FAIL: flatten leaves {self.more_names()}")
        if self.more_names() == ["new"]:
            same(self.now / "new", self.expected, "flatten")
            (self.now / "new").unlink()

    def after_flatten(self):
        same(self.now / "new", self.expected, "flatten")


def kill_some(scene, verb, draw):
    """Returns how many were killed in the middle."""
    scene.reset()
    words = getattr(scene, verb)()
    whole = float("inf")
    for _ in range(2):  # one may be held up
        scene.reset()
        begin = time.monotonic()
        must(*words)
        whole = min(whole, time.monotonic() - begin)
    killed = 0
    for _ in range(EACH):
        scene.reset()
        process = image(*words)
        time.sleep(draw.uniform(0, whole))
        process.kill()
        process.communicate(timeout=60)
        was_killed = process.returncode == -9
        killed += was_killed
        # What else the processors have to do changes all the time.
        whole *= 1.1 if was_killed else 0.7
        getattr(scene, f"{verb}_killed", lambda: None)()
        must(*words)
        getattr(scene, f"after_{verb}")()
    return killed


def main():
    draw = random.Random(SEED)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        scene = Scene(Path(name))
        for verb in ("flatten", "commit", "diff", "apply"):
            killed = kill_some(scene, verb, draw)
            print(f"{verb}: {killed} of {EACH} were killed before their end")
            if killed < EACH // 3:
                sys.exit("FAIL: too few were killed to tell anything")
    return 0


if __name__ == "__main__":
    sys.exit(main())
