#!/usr/bin/python3
"""The guest's agent as a process of this host, and its clients: agent_test.py RINGSIDE AGENT"""

import contextlib
import fcntl
import hashlib
import itertools
import os
import pty
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agent_wire as wire  # noqa: E402
from agent_case import AGENT, LIMIT, MIB, RINGSIDE, AgentCase, is_alive, wait_for  # noqa: E402


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

    def test_input_that_comes_too_late_takes_no_output_along(self):
        with self.exec("seq", "40000", options=("-i",), stdin=subprocess.PIPE) as process:
            time.sleep(2.5)  # the agent lets go of a command that has ended after 1 s
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(b"x")
                process.stdin.flush()
            time.sleep(0.2)  # nobody reads meanwhile
            output, _ = process.communicate(timeout=LIMIT)
            self.assertEqual((process.returncode, len(output)), (0, 228_894))

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

    def test_what_is_no_file_is_not_replaced(self):
        source = self.file("source", b"x")
        pipe, link = self.file("pipe"), self.file("link")
        os.mkfifo(pipe)
        os.symlink(pipe, link)
        for words in ((source, f"guest:{pipe}"), (f"guest:{source}", pipe), (f"guest:{source}", link)):
            done = self.cp(*words)
            self.assertIn(b"replace files and links alone", done.stderr)
            self.assertNotEqual(done.returncode, 0)
        self.assertTrue(stat.S_ISFIFO(os.lstat(pipe).st_mode))
        self.assertTrue(stat.S_ISLNK(os.lstat(link).st_mode))

    def test_input_that_does_not_wait_is_waited_for(self):
        there = self.file("there")
        reads, writes = os.pipe()
        os.set_blocking(reads, False)
        with subprocess.Popen([RINGSIDE, "cp", "--vsock", self.path, "-", f"guest:{there}"],
                              stdin=reads) as copy:
            time.sleep(0.3)
            os.write(writes, b"late")
            os.close(writes)
            self.assertEqual(copy.wait(LIMIT), 0)
        os.close(reads)
        with open(there, "rb") as file:
            self.assertEqual(file.read(), b"late")

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


class Signals(AgentCase):
    def test_a_copy_that_a_signal_ends_leaves_no_part(self):
        def file_without_end(host):
            data = itertools.repeat(wire.frame(wire.DATA, b"more"))
            agent.say(host, itertools.chain([wire.entry(b"name")], data), 0.01)
        agent = wire.FalseAgent(self.file("false.sock"), file_without_end)
        self.addCleanup(agent.close)
        target = self.file("target")
        os.mkdir(target)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with subprocess.Popen([RINGSIDE, "cp", "--vsock", self.file("false.sock"),
                                   "guest:/name", target], stderr=subprocess.PIPE) as process:
                wait_for(lambda: os.listdir(target), "the part")
                process.send_signal(number)
                self.assertEqual(process.wait(LIMIT), -number, process.stderr.read())
            self.assertEqual(os.listdir(target), [])


class ShortFiles(AgentCase):
    prefix = ("prlimit", "--fsize=65536")

    def test_a_file_that_is_too_long_is_an_error(self):
        source, there = self.file("source", bytes(100_000)), self.file("there")
        done = self.cp(source, f"guest:{there}")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"File too large", done.stderr)
        self.assertFalse(os.path.exists(there))
        self.assertEqual(self.result("sh", "-c", "kill -XFSZ $$")[0], 128 + signal.SIGXFSZ)


class Help(unittest.TestCase):
    def test_commands_have_examples(self):
        for command in ("exec", "cp"):
            done = subprocess.run([RINGSIDE, command, "--help"], check=True, capture_output=True)
            self.assertIn(b"Examples:", done.stdout)
            self.assertIn(b"Exit codes:", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
