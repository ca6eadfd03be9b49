"""What the tests of the guest's agent have in common. Their command line is RINGSIDE AGENT."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

RINGSIDE, AGENT = (os.path.abspath(path) for path in sys.argv[1:3])
LIMIT = 30  # seconds, for anything
# As a terminal has them: under nohup and the like they are ignored, and so by what is started here.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
MIB = 1 << 20


def wait_for(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {LIMIT} s")
        time.sleep(0.01)


def is_listened_to(path):
    """Without a connection, which the agent would count. A path exists before anybody listens."""
    accepts = 0x10000  # SO_ACCEPTCON: Linux, include/uapi/linux/net.h
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        sockets = [line.split() for line in file if line.endswith(f" {path}\n")]
    return any(int(fields[3], 16) & accepts for fields in sockets)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # It is reaped before the open, or between the open and the read.
        return False


class AgentCase(unittest.TestCase):
    """Each test has an agent of its own."""

    prefix = ()  # of the agent's command line

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = directory.name
        self.path = os.path.join(self.place, "agent.sock")
        # What the agent runs to shut its guest down: never this host's.
        for name in ("poweroff", "reboot"):
            self.file(name, f"#!/bin/sh\n: > {self.place}/did-{name}\n".encode(), 0o755)
        self.agent = subprocess.Popen(
            [*self.prefix, AGENT, "--unix", self.path, *self.more()],
            env={**os.environ, "PATH": f"{self.place}:{os.environ['PATH']}"})
        self.addCleanup(self.end_agent)
        wait_for(lambda: is_listened_to(self.path) or self.agent.poll() is not None, "the agent")

    def more(self):
        return ()

    def end_agent(self):
        self.agent.terminate()
        try:
            self.agent.wait(LIMIT)
        finally:
            self.agent.kill()
            self.agent.wait()

    def file(self, name, content=None, mode=None):
        path = os.path.join(self.place, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        if mode is not None:
            os.chmod(path, mode)
        return path

    def exec(self, *words, options=(), stdin=subprocess.DEVNULL, **more):
        return subprocess.Popen([RINGSIDE, "exec", "--vsock", self.path, *options, "--", *words],
                                stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def result(self, *words, options=(), content=None):
        """(exit code, output, errors)"""
        stdin = subprocess.DEVNULL if content is None else subprocess.PIPE
        with self.exec(*words, options=options, stdin=stdin) as process:
            output, errors = process.communicate(content, timeout=LIMIT)
        return process.returncode, output, errors

    def cp(self, *words, **more):
        return subprocess.run([RINGSIDE, "cp", "--vsock", self.path, *words], check=False,
                              capture_output=True, timeout=LIMIT, **more)

    def has_children(self):
        path = f"/proc/{self.agent.pid}/task/{self.agent.pid}/children"
        with open(path, encoding="utf-8") as file:
            return file.read() != ""

    def ticks(self):
        """The processor time of the agent so far."""
        with open(f"/proc/{self.agent.pid}/stat", encoding="utf-8") as file:
            return sum(map(int, file.read().rpartition(") ")[2].split()[11:13]))

    def require_rest(self, what):
        before = self.ticks()
        time.sleep(0.3)
        self.assertLess(self.ticks() - before, 10, what)
