#!/usr/bin/python3
"""The guest's agent as a process of this host, and its clients: agent_test.py RINGSIDE AGENT"""

import contextlib
import fcntl
import hashlib
import os
import pty
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agent_wire as wire  # noqa: E402

RINGSIDE, AGENT = (os.path.abspath(path) for path in sys.argv[1:3])
LIMIT = 30  # seconds, for anything
MIB = 1 << 20


def wait_for(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {LIMIT} s")
        time.sleep(0.01)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
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
        wait_for(lambda: os.path.exists(self.path) or self.agent.poll() is not None, "the agent")

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


class Exec(AgentCase):
    def test_output_and_errors_are_apart(self):
        self.assertEqual(self.result("sh", "-c", "echo out; echo err >&2; exit 3"),
                         (3, b"out\n", b"err\n"))

    def test_exit_codes(self):
        self.assertEqual(self.result("true")[0], 0)
        self.assertEqual(self.result("sh", "-c", "exit 255")[0], 255)
        self.assertEqual(self.result("sh", "-c", "kill -9 $$")[0], 128 + 9)
        self.assertEqual(self.result("no-such-command")[0], 127)
        self.assertEqual(self.result(self.file("plain", b"x", 0o644))[0], 126)
        code, _, errors = self.result("true", options=("--workdir", "/no/such"))
        self.assertEqual(code, 125)
        self.assertEqual(errors.count(b"\n"), 1)
        self.assertIn(b"/no/such", errors)
        self.assertEqual(self.result("true", options=("--user", "me"))[0], 125)
        self.assertEqual(self.result("true", options=("--no-such-option",))[0], 125)
        self.assertEqual(self.result("true", options=("--env", "x"))[0], 125)

    def test_environment_and_directory(self):
        code, output, _ = self.result("sh", "-c", "echo $A,$B; pwd; echo $PATH",
                                      options=("--env", "A=1", "--env", "B=two words",
                                               "--workdir", "/usr"))
        lines = output.decode().splitlines()
        self.assertEqual((code, lines[:2]), (0, ["1,two words", "/usr"]))
        self.assertIn("/usr/bin", lines[2])

    @unittest.skipIf(os.getuid() != 0, "only root can be others")
    def test_user(self):
        output = self.result("sh", "-c", "id -u; id -g; id -G", options=("--user", "65534:7"))[1]
        self.assertEqual(output.split(), [b"65534", b"7", b"7"])

    def test_input_is_empty_unless_it_is_asked_for(self):
        self.assertEqual(self.result("cat", content=b"x"), (0, b"", b""))
        self.assertEqual(self.result("cat", options=("-i",), content=b"x"), (0, b"x", b""))

    def test_every_byte_goes_both_ways(self):
        data = os.urandom(MIB + 12345)
        code, output, errors = self.result("cat", options=("-i",), content=data)
        self.assertEqual((code, errors), (0, b""))
        self.assertTrue(output == data)

    def test_what_was_written_before_the_end_arrives(self):
        # The pipe holds it when the command has ended.
        code, output, _ = self.result("sh", "-c", "head -c 60000 /dev/zero; exit 9")
        self.assertEqual((code, len(output)), (9, 60000))

    def test_a_background_process_does_not_hold_the_end(self):
        code, output, _ = self.result("sh", "-c", "sleep 100 & echo $!; exit 4")
        self.assertEqual(code, 4)
        os.kill(int(output), signal.SIGKILL)

    def test_signals_go_to_the_command(self):
        with self.exec("sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"
                       ) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.terminate()
            self.assertEqual(process.wait(LIMIT), 7)

    def test_a_signal_passes_input_that_nobody_reads(self):
        with self.exec("sh", "-c", "echo ready; exec sleep 100", options=("-i",),
                       stdin=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            os.set_blocking(process.stdin.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(1000):
                    os.write(process.stdin.fileno(), bytes(4096))
                    time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(LIMIT), 128 + signal.SIGINT)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def test_input_goes_on_after_a_signal_that_comes_with_it(self):
        with self.exec("sh", "-c", "trap '' TERM; echo ready; exec cat", options=("-i",),
                       stdin=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.send_signal(signal.SIGSTOP)
            process.stdin.write(b"words")
            process.stdin.flush()
            process.terminate()
            process.send_signal(signal.SIGCONT)
            time.sleep(0.1)  # for the input, before its end
            output, _ = process.communicate(timeout=LIMIT)
            self.assertEqual((process.returncode, output), (0, b"words"))

    def test_a_reader_that_goes_ends_the_command(self):
        with self.exec("yes") as process:
            process.stdout.readline()
            process.stdout.close()
            self.assertEqual(process.wait(LIMIT), 128 + signal.SIGPIPE)
        wait_for(lambda: not self.has_children(), "the command's end")

    def test_a_client_that_goes_takes_its_command_with_it(self):
        script = "trap '' HUP; (trap '' HUP; exec sleep 100) & echo $$ $!; wait; sleep 100"
        with self.exec("sh", "-c", script) as process:
            pids = [int(word) for word in process.stdout.readline().split()]
            self.assertTrue(all(is_alive(pid) for pid in pids))
            process.kill()
            for pid in pids:
                wait_for(lambda pid=pid: not is_alive(pid), "the end of a command")
        wait_for(lambda: not self.has_children(), "all is reaped")

    def test_a_half_closed_client_leaves_nothing(self):
        with wire.Wire(self.path) as client:
            client.send(wire.command("sleep", "100"))
            self.assertEqual(client.receive()[0], wire.STARTED)
            client.socket.shutdown(1)
            wait_for(lambda: not self.has_children(), "the command's end")

    def test_the_agent_ends_with_its_commands(self):
        with wire.Wire(self.path) as client:
            client.send(wire.command("sh", "-c", "trap '' HUP; echo x; while :; do sleep 9; done"))
            pid = struct.unpack("<I", client.receive()[1])[0]
            self.assertEqual(client.receive(), (wire.STDOUT, b"x\n"))
            self.agent.terminate()
            self.assertEqual(self.agent.wait(LIMIT), 0)
            self.assertFalse(is_alive(pid))

    def test_nobody_listens(self):
        done = subprocess.run([RINGSIDE, "exec", "--vsock", self.file("none"), "--", "true"],
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 125)
        self.assertEqual(done.stderr.count(b"\n"), 1)


class Agents(unittest.TestCase):
    """What a client makes of agents that are not ours."""

    def exec_with(self, answer):
        """Of `ringside exec` whose agent says this when it is asked, and then nothing: its end."""
        with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as listener:
            listener.settimeout(LIMIT)
            listener.bind(os.path.join(place, "socket"))
            listener.listen()
            words = [RINGSIDE, "exec", "--vsock", listener.getsockname(), "-i", "--", "x"]
            # Its input is open and empty: nothing else wakes it.
            ours, its = socket.socketpair()
            with ours, its, subprocess.Popen(words, stdin=its, stdout=subprocess.PIPE,
                                             stderr=subprocess.PIPE) as client:
                with listener.accept()[0] as agent:
                    agent.sendall(b"OK 1\n" + wire.frame(wire.HELLO, wire.HELLO_PAYLOAD) + answer)
                    try:
                        output, errors = client.communicate(timeout=10)
                    finally:
                        client.kill()
            return client.returncode, output, errors

    def test_all_may_come_at_once(self):
        answer = wire.frame(wire.STARTED, bytes(4)) + wire.frame(wire.STDOUT, b"words") + \
            wire.frame(wire.EXIT, struct.pack("<II", 3, 0))
        self.assertEqual(self.exec_with(answer), (3, b"words", b""))

    def test_what_breaks_the_protocol_is_one_line(self):
        started = wire.frame(wire.STARTED, bytes(4))
        for answer in (wire.frame(wire.EXEC), b"\xff" * 100, started + wire.frame(wire.HELLO),
                       started + wire.frame(wire.STDIN_TAKEN, struct.pack("<I", 1)),
                       started + wire.frame(wire.EXIT, struct.pack("<II", 256, 0))):
            code, output, errors = self.exec_with(answer)
            self.assertEqual((code, output, errors.count(b"\n")), (125, b"", 1), errors)
            self.assertIn(b"breaks the protocol", errors)

    def test_its_texts_are_printable(self):
        error = struct.pack("<iI", 2, 1) + b"\x1b[31mred\nline"
        code, _, errors = self.exec_with(wire.frame(wire.ERROR, error))
        self.assertEqual((code, errors.count(b"\n")), (127, 1))
        self.assertNotIn(b"\x1b", errors)


class Many(AgentCase):
    def test_a_hundred_at_once_and_no_more_than_the_limit(self):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(wire.Wire(self.path)) for _ in range(128)]
            for number, client in enumerate(clients[:100]):
                client.send(wire.command("cat"))
                client.send(wire.frame(wire.STDIN, b"%d" % number * 1000))
                client.send(wire.frame(wire.STDIN_END))
            refused = wire.Wire(self.path, greeted=False)
            with contextlib.suppress(BrokenPipeError):
                refused.send(b"CONNECT 5005\n")
            self.assertEqual(refused.read(5), b"OK 0\n")
            said = refused.until(wire.ERROR)
            self.assertIn(b"too many", said[wire.ERROR])
            refused.socket.close()
            for number, client in enumerate(clients[:100]):
                said = client.until(wire.EXIT)
                self.assertEqual(said[wire.STDOUT], b"%d" % number * 1000)
                self.assertEqual(said[wire.EXIT], bytes(8))
        wait_for(lambda: not self.has_children(), "all is reaped")
        self.assertEqual(self.result("true")[0], 0)

    def test_a_client_that_reads_nothing_holds_itself_alone(self):
        with wire.Wire(self.path) as client:
            client.send(wire.command("yes"))
            self.assertEqual(client.receive()[0], wire.STARTED)
            time.sleep(0.2)  # for whatever the agent would do with endless output
            self.assertEqual(self.result("echo", "fine")[1], b"fine\n")
            with open(f"/proc/{self.agent.pid}/status", encoding="utf-8") as file:
                pages = next(line for line in file if line.startswith("RssAnon:"))
            if not is_sanitized():
                self.assertLess(int(pages.split()[1]), 8192)
            self.require_rest("an agent that has to wait")

    def test_idle_clients_give_way(self):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(wire.Wire(self.path)) for _ in range(128)]
            for client in clients:
                client.send(wire.frame(wire.PING))
                self.assertEqual(client.receive()[0], wire.DONE)
            # Another request: of the others the second is now who has been idle for longest.
            clients[0].send(wire.frame(wire.PING))
            self.assertEqual(clients[0].receive()[0], wire.DONE)
            self.assertEqual(self.result("echo", "fine")[1], b"fine\n")
            self.assertIsNone(clients[1].receive()[0])
            for client in (clients[0], *clients[2:]):
                client.send(wire.frame(wire.PING))
                self.assertEqual(client.receive()[0], wire.DONE)


class FewDescriptors(AgentCase):
    prefix = ("prlimit", "--nofile=20:20")

    def test_without_any_clients_wait_and_the_agent_rests(self):
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(wire.Wire(self.path, greeted=False)) for _ in range(30)]
            self.require_rest("an agent without descriptors")
            silent[0].socket.close()
            # One of those that wait takes its place.
            silent[25].socket.close()
            self.require_rest("an agent without descriptors")
        self.assertEqual(self.result("echo", "fine")[1], b"fine\n")

    def test_idle_clients_give_way(self):
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                client = stack.enter_context(wire.Wire(self.path))
                client.send(wire.frame(wire.PING))
                self.assertEqual(client.receive()[0], wire.DONE)


class Terminal(AgentCase):
    def test_size_keys_and_the_mode_afterwards(self):
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        before = termios.tcgetattr(its)
        script = "stty size; tty; read a; echo got-$a; read b; echo got-$b; stty size; exit 5"
        process = subprocess.Popen(
            [RINGSIDE, "exec", "--vsock", self.path, "-it", "--", "sh", "-c", script],
            stdin=its, stdout=its, stderr=its, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        text = b""

        def until(wanted):
            nonlocal text
            end = time.monotonic() + LIMIT
            while wanted not in text and time.monotonic() < end:
                if select.select([ours], [], [], 0.1)[0]:
                    text += os.read(ours, 4096)
            self.assertIn(wanted, text)

        until(b"33 99")
        until(b"/dev/pts/")
        self.assertNotEqual(termios.tcgetattr(its), before)
        os.write(ours, b"one\r")
        until(b"got-one")
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        process.send_signal(signal.SIGWINCH)
        os.write(ours, b"two\r")
        until(b"got-two")
        until(b"40 120")
        self.assertEqual(process.wait(LIMIT), 5)
        self.assertEqual(termios.tcgetattr(its), before)
        os.close(ours)
        os.close(its)

    def test_ctrl_c_is_a_key_of_the_guests_terminal(self):
        with wire.Wire(self.path) as client:
            # exec: dash loses a SIGINT that comes while it starts a child.
            client.send(wire.command("sh", "-c", "echo ready; exec sleep 100", terminal=True))
            said = b""
            while b"ready" not in said:
                said += client.receive()[1]
            client.send(wire.frame(wire.STDIN, b"\x03"))
            self.assertEqual(client.until(wire.EXIT)[wire.EXIT][4:5], bytes([signal.SIGINT]))

    def test_the_end_of_input_is_a_ctrl_d(self):
        with wire.Wire(self.path) as client:
            client.send(wire.command("cat", terminal=True))
            client.send(wire.frame(wire.STDIN, b"x\n") + wire.frame(wire.STDIN_END))
            said = client.until(wire.EXIT)
            self.assertEqual(said[wire.EXIT], bytes(8))
            self.assertIn(b"x\r\nx\r\n", said[wire.STDOUT])


class Files(AgentCase):
    def test_in_and_out_again(self):
        data = os.urandom(MIB + 777)
        source = self.file("source", data, 0o751)
        there, back = self.file("there"), self.file("back")
        self.assertEqual(self.cp(source, f"guest:{there}").returncode, 0)
        self.assertEqual(self.cp(f"guest:{there}", back).returncode, 0)
        for path in (there, back):
            with open(path, "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).digest(),
                                 hashlib.sha256(data).digest())
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o751)

    def test_standard_input_and_output(self):
        there = self.file("there")
        data = os.urandom(100_000)
        self.assertEqual(self.cp("-", f"guest:{there}", input=data).returncode, 0)
        self.assertEqual(self.cp(f"guest:{there}", "-").stdout, data)
        # A file whose size is not known beforehand.
        self.assertEqual(self.cp(f"guest:/proc/{self.agent.pid}/cmdline", "-").stdout.split(b"\0")[0],
                         AGENT.encode())

    def test_trees(self):
        tree = self.file("tree")
        os.makedirs(os.path.join(tree, "a/b"))
        self.file("tree/a/b/file", b"text", 0o640)
        os.symlink("b/file", os.path.join(tree, "a/link"))
        os.chmod(os.path.join(tree, "a"), 0o750)
        inside = self.file("inside")
        os.mkdir(inside)
        refused = self.cp(tree, f"guest:{inside}")
        self.assertEqual(refused.returncode, 2)
        self.assertIn(b"-r", refused.stderr)
        self.assertEqual(self.cp("-r", tree, f"guest:{inside}").returncode, 0)
        self.assertEqual(self.cp("-r", f"guest:{inside}/tree", self.file("out")).returncode, 0)
        for copy in (os.path.join(inside, "tree"), self.file("out")):
            with open(os.path.join(copy, "a/b/file"), "rb") as file:
                self.assertEqual(file.read(), b"text")
            self.assertEqual(stat.S_IMODE(os.stat(f"{copy}/a/b/file").st_mode), 0o640)
            self.assertEqual(stat.S_IMODE(os.stat(f"{copy}/a").st_mode), 0o750)
            self.assertEqual(os.readlink(f"{copy}/a/link"), "b/file")

    def test_what_cannot_be_is_one_line(self):
        source = self.file("source", b"x")
        for words, code in (((source, "guest:/no/such/place"), 2), (("guest:/no/such", "x"), 2),
                            ((self.file("none"), "guest:/tmp/x"), 2), ((source, source), 2),
                            (("guest:/a", "guest:/b"), 2), ((source, "guest:relative"), 2),
                            (("guest:/", "-"), 2), (("-r", "guest:/tmp", "-"), 2)):
            done = self.cp(*words)
            self.assertEqual(done.returncode, code, (words, done.stderr))
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)

    def test_a_client_that_goes_leaves_no_part(self):
        there = self.file("there")
        os.mkdir(there)
        with wire.Wire(self.path) as client:
            client.send(wire.frame(wire.PUT, there.encode()) + wire.entry(b"name") +
                        wire.frame(wire.DATA, b"half"))
            wait_for(lambda: os.listdir(there), "the part")
        wait_for(lambda: not os.listdir(there), "its end")

    def test_after_a_put_that_failed_the_connection_goes_on(self):
        with wire.Wire(self.path) as client:
            client.send(wire.frame(wire.PUT, b"/no/such/place") + wire.entry(b"name") +
                        wire.frame(wire.DATA, b"x") + wire.frame(wire.FILE_END) +
                        wire.frame(wire.TREE_END) + wire.frame(wire.PING))
            self.assertEqual(client.receive()[0], wire.ERROR)
            self.assertEqual(client.receive()[0], wire.DONE)


class Hostile(AgentCase):
    def test_only_the_own_connection_suffers(self):
        hello = wire.frame(wire.HELLO, wire.HELLO_PAYLOAD)
        words = wire.frame(wire.PUT, self.place.encode())
        after_hello = {
            "unknown": wire.frame(999), "oversized": struct.pack("<IHH", 1 << 31, wire.EXEC, 0),
            "reserved": struct.pack("<IHH", 0, wire.PING, 7), "stdin first": wire.frame(wire.STDIN),
            "a second hello": hello, "malformed": wire.frame(wire.EXEC, b"x" * 24),
            "what the agent says": wire.frame(wire.EXIT, bytes(8)),
            "signal 0": wire.command("cat") + wire.frame(wire.SIGNAL, bytes(4)),
            "two commands": wire.command("cat") * 2,
            "beyond the window": wire.command("sleep", "100") +
                                 wire.frame(wire.STDIN, bytes(wire.MOST_DATA)) * 5,
            "input after its end": wire.command("cat") + wire.frame(wire.STDIN_END) +
                                   wire.frame(wire.STDIN, b"x"),
            "a name outside": words + wire.entry(b"../x"), "data first": words + wire.frame(wire.DATA),
            "no directory left": words + wire.frame(wire.LEAVE)}
        with wire.Wire(self.path) as other:
            other.send(wire.command("cat"))
            for what, data in after_hello.items():
                with self.subTest(what), wire.Wire(self.path) as client:
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        client.send(data)
                    self.assertIn(wire.ERROR, client.until(wire.ERROR))
                    if what == "unknown":
                        self.assertEqual(client.receive()[0], None)  # it is closed
            for what, data in {"no greeting": b"GET / HTTP/1.1\r\n\r\n", "endless": b"x" * 100,
                               "no hello": b"CONNECT 1\n" + wire.frame(wire.PING)}.items():
                with self.subTest(what), wire.Wire(self.path, greeted=False) as client:
                    client.send(data)
                    while client.read(1) is not None:
                        pass
            other.send(wire.frame(wire.STDIN, b"still here") + wire.frame(wire.STDIN_END))
            self.assertEqual(other.until(wire.EXIT)[wire.STDOUT], b"still here")
        wait_for(lambda: not self.has_children(), "all is reaped")

    def test_truncated(self):
        data = wire.frame(wire.HELLO, wire.HELLO_PAYLOAD) + wire.command("true")
        for size in range(0, len(data), 5):
            with wire.Wire(self.path, greeted=False) as client:
                client.send(b"CONNECT 1\n" + data[:size])
        self.assertEqual(self.result("true")[0], 0)


class Rights(AgentCase):
    """Of an agent that has none, so that this host's clock stays what it is."""

    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.getuid() == 0 \
        else ()

    def setUp(self):
        make = tempfile.mkdtemp
        with unittest.mock.patch("tempfile.mkdtemp", lambda *args: _open_to_all(make(*args))):
            super().setUp()

    def test_the_clock_and_random_numbers_are_the_kernels_to_give(self):
        with wire.Wire(self.path) as client:
            for message in (wire.frame(wire.CLOCK, struct.pack("<Q", 10**18)),
                            wire.frame(wire.ENTROPY, b"x" * 64)):
                client.send(message)
                kind, payload = client.receive()
                self.assertEqual((kind, payload[0]), (wire.ERROR, 1), payload)  # EPERM
            client.send(wire.frame(wire.PING))
            self.assertEqual(client.receive()[0], wire.DONE)


def _open_to_all(directory):
    os.chmod(directory, 0o777)
    return directory


class ShutDown(AgentCase):
    def test_the_guests_own_init_is_asked(self):
        with wire.Wire(self.path) as client:
            for how, name in ((0, "poweroff"), (1, "reboot")):
                client.send(wire.frame(wire.SHUT_DOWN, struct.pack("<I", how)))
                self.assertEqual(client.receive()[0], wire.DONE)
                wait_for(lambda name=name: os.path.exists(self.file(f"did-{name}")), name)


NAMESPACES = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child")


def has_namespaces():
    """Whether what runs there is PID 1 of a namespace that is not ours. This has to be certain: in ours
    reboot(2) would end this host, and kill(-1) all that runs on it."""
    script = "echo $$; readlink /proc/self/ns/pid; readlink /proc/1/ns/pid"
    done = subprocess.run([*NAMESPACES, "sh", "-c", script], check=False, capture_output=True)
    pid, own, first = (done.stdout.decode().split() + [""] * 3)[:3]
    ours = os.readlink("/proc/self/ns/pid")
    return done.returncode == 0 and pid == "1" and own == first and own not in ("", ours)


@unittest.skipUnless(os.getpid() != 1 and has_namespaces(), "this host makes no PID namespaces")
class Init(AgentCase):
    """As PID 1 of a namespace, where reboot(2) ends that alone (pid_namespaces(7))."""

    prefix = NAMESPACES

    def more(self):
        return ("--init", "sh", "-c", f"echo $PPID > {self.place}/parent")

    def test_it_is_init(self):
        wait_for(lambda: os.path.exists(self.file("parent")) and
                 os.path.getsize(self.file("parent")), "the command of --init")
        with open(self.file("parent"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "1\n")
        self.assertEqual(self.result("sh", "-c", "cat /proc/1/comm")[1], b"ringside-agent\n")
        # Of a parent that does not wait.
        self.result("sh", "-c", "(sleep 0.01 &) ; exit 0")
        wait_for(lambda: self.result("sh", "-c", "cat /proc/[0-9]*/stat")[1].count(b"(sleep)") == 0,
                 "an orphan is reaped")

    def test_it_ends_everything_and_has_the_kernel_power_off(self):
        script = f"trap 'echo ended > {self.place}/ended; exit' TERM; echo x; " \
                 "while :; do sleep 0.01; done"
        with wire.Wire(self.path) as first, wire.Wire(self.path) as second:
            first.send(wire.command("sh", "-c", script))
            first.until(wire.STDOUT)
            second.send(wire.frame(wire.SHUT_DOWN, bytes(4)))
            self.assertEqual(second.receive()[0], wire.DONE)
            # pid_namespaces(7): its init dies by SIGINT then, and unshare does as it does.
            self.assertEqual(self.agent.wait(LIMIT), -signal.SIGINT)
        self.assertTrue(os.path.exists(self.file("ended")))

    def end_agent(self):
        self.agent.kill()  # --kill-child
        self.agent.wait()


def is_sanitized():
    with open(AGENT, "rb") as file:
        return b"__asan_init" in file.read()


class Binary(unittest.TestCase):
    def test_it_runs_in_any_guest(self):
        if is_sanitized():
            self.skipTest("a sanitizer's is neither static nor small")
        self.assertLess(os.path.getsize(AGENT), MIB)
        headers = subprocess.run(["readelf", "-ld", AGENT], check=True, capture_output=True).stdout
        self.assertNotIn(b"INTERP", headers)
        self.assertNotIn(b"NEEDED", headers)

    def test_bad_options_are_one_line(self):
        for words in (["--no-such"], ["--port"], ["--port", "x"]):
            done = subprocess.run([AGENT, *words], check=False, capture_output=True)
            self.assertEqual((done.returncode, done.stderr.count(b"\n")), (2, 1), words)
        done = subprocess.run([AGENT, "--unix", "/no/such/place"], check=False, capture_output=True)
        self.assertEqual(done.returncode, 1)


class Help(unittest.TestCase):
    def test_commands_have_examples(self):
        for command in ("exec", "cp"):
            done = subprocess.run([RINGSIDE, command, "--help"], check=True, capture_output=True)
            self.assertIn(b"Examples:", done.stdout)
            self.assertIn(b"Exit codes:", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
