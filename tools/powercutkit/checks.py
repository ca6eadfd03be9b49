"""Runs the user's check on each image, on several processors."""

import os
import queue
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from powercutkit.image import Image
from powercutkit.record import Problem
from powercutkit.replay import Replay

_OUTPUT_KEPT = 2000     # Letters of a failed check's, the last ones.


@dataclass
class Plan:
    """What is looked at, and how."""

    record: object
    source: str             # The image that the record began with; None: zeroes.
    directory: Path
    check: list             # The command; "{}" in it is the image's path.
    seed: int = 1
    randoms: int = 20
    most_singles: int = None
    torn: bool = False
    is_scratch: bool = False    # The check may write to the image.
    check_seconds: float = 60


@dataclass
class Failure:
    point: int
    subset: str
    unflushed: int      # How many there were.
    chosen: list        # Those that are in the image, as text.
    output: str


class Worker:
    """Looks at some of the points, in their order."""

    def __init__(self, plan, number):
        self.plan = plan
        path = plan.directory / f"image-{number}"
        self.image = Image(path, plan.record.disk_bytes, plan.source)
        self.replay = Replay(plan.record, self.image)
        self.scratch = plan.directory / f"scratch-{number}" if plan.is_scratch else None

    def close(self):
        self.image.close()

    def subsets_at(self, point):
        self.replay.go_to(point)
        plan = self.plan
        return self.replay.subsets(plan.seed, plan.randoms, plan.most_singles, plan.torn)

    def look(self, subset):
        """Returns a Failure, or None."""
        self.replay.apply(subset)
        try:
            path = self.image.path
            if self.scratch is not None:
                self.image.copy_to(self.scratch)
                path = self.scratch
            output = self._run(path, subset)
        finally:
            self.image.undo()
        if output is None:
            return None
        return Failure(self.replay.point, subset.name, len(self.replay.unflushed()),
                       [str(request) for request in subset.chosen], output)

    def _run(self, path, subset):
        """Returns None, or what a check that failed has said."""
        command = [word.replace("{}", str(path)) for word in self.plan.check]
        environment = {**os.environ, "POWERCUT_POINT": str(self.replay.point),
                       "POWERCUT_SUBSET": subset.name, "POWERCUT_FLUSHES": str(self.replay.flushes)}
        try:
            # In a session of its own, so that what it has started ends with it.
            check = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, env=environment,
                                     start_new_session=True)
        except OSError as error:
            raise Problem(f"cannot run the check '{command[0]}': {error.strerror}") from None
        with check:
            try:
                text = check.communicate(timeout=self.plan.check_seconds)[0]
            except subprocess.TimeoutExpired:
                os.killpg(check.pid, signal.SIGKILL)
                return f"no end after {self.plan.check_seconds:g} s"
            except BaseException:
                os.killpg(check.pid, signal.SIGKILL)
                raise
        if check.returncode == 0:
            return None
        text = text.decode(errors="replace").strip()
        return text[-_OUTPUT_KEPT:] or f"exit status {check.returncode}"


@dataclass
class Result:
    points: int = 0
    images: int = 0
    points_left: int = 0    # When the time was over.
    failures: list = None
    seconds: float = 0


def run(plan, points, jobs, deadline=None, progress=lambda done, failed: None):
    """Checks all images of the points; `deadline`: of time.monotonic()."""
    began = time.monotonic()
    result = Result(failures=[])
    lock = threading.Lock()
    problems = queue.SimpleQueue()

    def work(number):
        worker = Worker(plan, number)
        try:
            for point in points[number::jobs]:
                for subset in worker.subsets_at(point):
                    if (deadline is not None and time.monotonic() > deadline) or not problems.empty():
                        return
                    failure = worker.look(subset)
                    with lock:
                        result.images += 1
                        if failure is not None:
                            result.failures.append(failure)
                with lock:
                    result.points += 1
                    progress(result.points, len(result.failures))
        finally:
            worker.close()

    def guarded(number):
        try:
            work(number)
        except Exception as problem:  # pylint: disable=broad-except
            problems.put(problem)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not problems.empty():
        raise problems.get()
    result.points_left = len(points) - result.points
    result.failures.sort(key=lambda failure: (failure.point, failure.subset))
    result.seconds = time.monotonic() - began
    return result
