#!/usr/bin/python3
"""What bounds the guest's agent and its clients: who is hostile, too many, or init:
agent_limits_test.py RINGSIDE AGENT"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agent_wire as wire  # noqa: E402
from agent_case import AGENT, LIMIT, MIB, RINGSIDE, AgentCase, wait_for  # noqa: E402


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
            refused = wire.Wire(self.path, greeted=False)
            with contextlib.suppress(BrokenPipeError):
                refused.send(b"CONNECT 5005\n")
            self.assertEqual(refused.read(5), b"OK 0\n")
            said = refused.until(wire.ERROR)
            self.assertIn(b"too many", said[wire.ERROR])
            refused.socket.close()
            for client in clients[:100]:  # only now: who is done leaves within a second
                client.send(wire.frame(wire.STDIN_END))
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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
