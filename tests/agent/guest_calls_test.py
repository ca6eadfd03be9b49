#!/usr/bin/python3
"""What the control socket asks of a guest's agent: guest_calls_test.py RINGSIDE AGENT GUEST_ELF

The machine runs a bare-metal guest; the agent is a process of this host that has taken the place of
the machine's vsock.
"""

import base64
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import unittest

import agent_case
import agent_wire as wire
from agent_case import LIMIT, MIB, wait_for

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../command"))
from unix_connection import UnixConnection  # noqa: E402

SO_SNDBUFFORCE = 32  # Linux: include/uapi/asm-generic/socket.h
GUEST = os.path.abspath(sys.argv[3])


class MachineCase(agent_case.AgentCase):
    # It may not set this host's clock.
    prefix = ("setpriv", "--bounding-set=-sys_time") if os.getuid() == 0 else ()

    def setUp(self):
        super().setUp()
        self.api, self.events = self.file("vm.sock"), self.file("events")

    def run_machine(self, *options):
        machine = subprocess.Popen(
            [agent_case.RINGSIDE, "run", "--kernel", GUEST, "--cmdline", "rw=randread runtime=100s",
             "--memory", "64M", "--disk", "type=null,size=16M", "--serial", "none",
             "--events", self.events, "--api-sock", self.api, *options])
        self.addCleanup(machine.wait, LIMIT)
        self.addCleanup(machine.terminate)
        wait_for(lambda: "started" in self.told() or machine.poll() is not None, "the machine")

    def told(self):
        try:
            with open(self.events, encoding="utf-8") as file:
                return [json.loads(line)["event"] for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def call(self, what, wait="30s", method="POST", **given):
        """(status, answer)"""
        connection = UnixConnection(self.api, LIMIT)
        query = f"?wait={wait}" if wait else ""
        connection.request(method, f"/ringside/v1/{what}{query}", json.dumps(given))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, json.loads(content) if content else None

    def result(self, *command, **given):
        status, end = self.call("guest/exec", command=command, **given)
        self.assertEqual(status, 200, end)
        return end


class GuestCalls(MachineCase):
    def setUp(self):
        super().setUp()
        vsock = self.file("vm.vsock")
        self.run_machine("--vsock", f"cid=3,path={vsock}")
        os.rename(self.path, vsock)

    def test_commands(self):
        end = self.result("sh", "-c", "cat; echo bad >&2; exit 7", input="a\nb\n")
        self.assertEqual(end, {"how": "exited", "code": 7, "signal": 0, "output": "a\nb\n",
                               "errors": "bad\n", "was_cut": False})
        end = self.result("sh", "-c", "kill -9 $$")
        self.assertEqual((end["how"], end["signal"]), ("killed", 9))
        end = self.result("sh", "-c", "pwd; echo $A", directory="/usr", environment=["A=b c"])
        self.assertEqual(end["output"], "/usr\nb c\n")
        end = self.result("sh", "-c", "echo early; sleep 100", limit="4s")
        self.assertEqual((end["how"], end["output"]), ("timed-out", "early\n"))
        # More than it may say, and than a window of input has.
        end = self.result("head", "-c", "3000000", "/dev/zero", **{"most-output": 1000})
        self.assertEqual((len(end["output"]), end["was_cut"], end["code"]), (1000, True, 0))
        # Two streams of what is six bytes each in JSON: no more of it than of what is one.
        end = self.result("sh", "-c", "head -c 3000000 /dev/zero | tee /dev/stderr", **{"most-output": "2M"})
        for text in (end["output"], end["errors"]):
            self.assertTrue(2.7e6 < len(json.dumps(text)) < 2.8e6, len(text))
        self.assertEqual((end["was_cut"], end["code"]), (True, 0))
        data = os.urandom(MIB // 2)
        end = self.result("cat", input=base64.b64encode(data).decode(), base64=True)
        self.assertEqual(base64.b64decode(end["output"]), data)
        self.assertFalse(end["was_cut"])
        self.assertEqual(self.result("printf", r"\377")["output"], "\ufffd")

    def test_refusals(self):
        self.assertEqual(self.call("guest/exec", command=["no-such-program"])[0], 404)
        status, answer = self.call("guest/exec", command=["true"], directory="/no/where")
        self.assertEqual(status, 404)
        self.assertIn("in the guest: ", answer["error"])
        for wrong in ({"command": []}, {"command": ["a\0b"]}, {"command": ["true"], "input": "%",
                      "base64": True}, {"command": ["true"], "environment": ["x"]}, {}):
            self.assertEqual(self.call("guest/exec", **wrong)[0], 400, wrong)
        self.assertEqual(self.call("guest/copy-in", **{"from": "/no/where", "to": "/tmp/x"})[0], 404)
        self.assertEqual(self.call("guest/copy-in", **{"from": self.place, "to": "/tmp/x"})[0], 409)
        self.agent.terminate()
        self.agent.wait(LIMIT)
        for what in ("exec", "shut-down", "randomness"):
            given = {"command": ["true"]} if what == "exec" else {}
            status, answer = self.call(f"guest/{what}", **given)
            self.assertEqual(status, 502, answer)

    def test_files(self):
        source = self.file("source", os.urandom(3 * MIB), 0o640)
        copied, back = self.file("copied"), self.file("back")
        self.assertEqual(self.call("guest/copy-in", **{"from": source, "to": copied}), (204, None))
        self.assertEqual(self.call("guest/copy-out", **{"from": copied, "to": back}), (204, None))
        with open(source, "rb") as one, open(back, "rb") as other:
            self.assertEqual(one.read(), other.read())
        self.assertEqual(os.stat(back).st_mode & 0o777, 0o640)
        given = {"from": copied, "to": self.file("bounded")}
        self.assertEqual(self.call("guest/copy-out", **given, **{"most-bytes": 3 * MIB})[0], 204)
        os.unlink(self.file("bounded"))
        status, answer = self.call("guest/copy-out", **given, **{"most-bytes": 3 * MIB - 1})
        self.assertEqual(status, 400)
        self.assertIn(f"more than {3 * MIB - 1} bytes", answer["error"])
        self.assertFalse(os.path.exists(self.file("bounded")))
        os.mkdir(self.file("tree"))
        self.file("tree/a", b"1")
        given = {"from": self.file("tree"), "to": self.file("tree2"), "directories": True}
        self.assertEqual(self.call("guest/copy-in", **given)[0], 204)
        self.assertTrue(os.path.exists(self.file("tree2/a")))

    def test_the_guest_as_a_whole(self):
        status, agent = self.call("guest/agent", method="GET")
        self.assertEqual((status, agent["protocol"]), (200, 1))
        self.assertEqual(self.call("guest/clock", method="PUT")[0], 403)
        self.assertIn(self.call("guest/randomness")[0], (204, 403))
        self.assertEqual(self.call("guest/shut-down", reboot=True)[0], 204)
        wait_for(lambda: os.path.exists(self.file("did-reboot")), "the agent's reboot")

    def test_a_guest_that_lets_wait_holds_up_no_pause(self):
        for _ in range(12):
            status, _ = self.call("guest/exec", wait="0", command=["sleep", "100"], limit="60s")
            self.assertEqual(status, 202)
        self.addCleanup(self.end_agent)  # else the calls, and so the machine's process, go on
        self.assertEqual(self.call("machine/pause"), (204, None))
        self.assertEqual(self.call("machine/resume", wait=None), (204, None))

    def test_ctl(self):
        def ctl(*words):
            done = subprocess.run([agent_case.RINGSIDE, "ctl", self.api, *words], check=False,
                                  capture_output=True, text=True, timeout=LIMIT)
            return done.returncode, done.stdout, done.stderr
        code, output, _ = ctl("exec", "--command", "printf %s,%s a\\ b c")
        self.assertEqual((code, json.loads(output)["output"]), (0, "a b,c"))
        self.assertEqual(ctl("agent")[0], 0)
        code, output, errors = ctl("exec", "--command", "no-such-program")
        self.assertEqual((code, output, len(errors.splitlines())), (2, "", 1))


class HostileAgent(MachineCase):
    """It never stops, and is never silent: each call ends all the same, long before this."""

    WAIT = "20s"  # so a call that is not done by then is answered with 202

    def setUp(self):
        super().setUp()
        self.vsock = self.file("vm.vsock")
        self.run_machine("--vsock", f"cid=3,path={self.vsock}")

    def put_agent(self, act, greets=True):
        agent = wire.FalseAgent(self.file("false.sock"), act, greets)
        self.addCleanup(agent.close)
        os.rename(self.file("false.sock"), self.vsock)
        return agent

    def end_of(self, what, **given):
        return self.call(f"guest/{what}", wait=self.WAIT, **given)

    def copy_out(self, **given):
        """(status, answer) of one that leaves nothing."""
        os.mkdir(self.file("to"))
        end = self.end_of("copy-out", **{"from": "/file", "to": self.file("to"), **given})
        self.assertEqual(os.listdir(self.file("to")), [])
        return end

    def require_late(self, end):
        self.assertEqual(end[0], 504, end)
        self.assertIn("the agent was not done within 1s", end[1]["error"])

    def test_an_answer_byte_by_byte(self):
        error = wire.frame(wire.ERROR, bytes(8) + b"x" * 1024)
        agent = self.put_agent(lambda agents: agent.say(
            agents, (bytes([byte]) for byte in error), 0.1))
        self.require_late(self.end_of("exec", command=["true"], limit="1s"))

    def test_a_line_byte_by_byte(self):
        line = b"OK " + b"1" * 61
        agent = self.put_agent(lambda agents: agent.say(
            agents, (bytes([byte]) for byte in line), 0.5), greets=False)
        self.require_late(self.end_of("exec", command=["true"], limit="1s"))

    def test_output_without_end(self):
        started = wire.frame(wire.STARTED, bytes(4))
        output = wire.frame(wire.STDOUT, b"x") * 100_000  # which takes longer to read than to say

        def say_on(agents):
            # There is always more to be read, if this process may have it so.
            with contextlib.suppress(PermissionError):
                agents.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16 * MIB)
            agent.say(agents, itertools.chain([started], itertools.repeat(output)))
        agent = self.put_agent(say_on)
        status, end = self.end_of("exec", command=["yes"], limit="5s", **{"most-output": 1000})
        self.assertEqual((status, end.get("how")), (200, "timed-out"), end)
        self.assertEqual((end["output"], end["was_cut"]), ("x" * 1000, True))

    def test_a_file_without_end(self):
        data = itertools.repeat(wire.frame(wire.DATA, b"x" * 100))
        agent = self.put_agent(lambda agents: agent.say(
            agents, itertools.chain([wire.entry(b"file")], data), 0.01))
        self.require_late(self.copy_out(limit="1s"))

    def test_a_file_with_too_many_bytes(self):
        data = itertools.repeat(wire.frame(wire.DATA, b"x" * 100))
        agent = self.put_agent(lambda agents: agent.say(
            agents, itertools.chain([wire.entry(b"file")], data)))
        status, answer = self.copy_out(**{"most-bytes": 10_000})
        self.assertEqual(status, 400, answer)
        self.assertIn("more than 10000 bytes", answer["error"])

    def test_what_is_taken_slowly(self):
        def take(agents):
            while not agent.is_over.wait(0.01) and agents.recv(20_000):
                pass
        agent = self.put_agent(take)
        source = self.file("source", b"")
        os.truncate(source, 256 * MIB)
        self.require_late(self.end_of("copy-in", **{"from": source, "to": "/x", "limit": "1s"}))


class WithoutVsock(MachineCase):
    def test_it_says_what_is_missing(self):
        self.run_machine()
        status, answer = self.call("guest/exec", command=["true"])
        self.assertEqual(status, 409)
        self.assertIn("--vsock", answer["error"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
