#!/usr/bin/python3
"""ringside ctl, serve and completion as users meet them: ctl_test.py RINGSIDE GUEST_ELF"""

import ctypes
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from unix_connection import is_served

RINGSIDE, GUEST = sys.argv[1:3]
LIMIT = 30  # seconds, for anything
CONFIG = {"kernel": GUEST, "memory": "64M", "serial": "none",
          "cmdline": "rw=randread qd=4 runtime=60s wait=irq",
          "disks": [{"type": "null", "size": "64M", "id": "data"}]}


def run(*words, **options):
    return subprocess.run([RINGSIDE, *words], capture_output=True, text=True, timeout=LIMIT,
                          check=False, **options)


def on_terminal(*words):
    """What the command prints on a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen([RINGSIDE, *words], stdin=its, stdout=its, stderr=its)
    os.close(its)
    text = b""
    try:
        while piece := os.read(ours, 4096):
            text += piece
    except OSError:  # it has gone
        pass
    os.close(ours)
    process.wait(LIMIT)
    return text.decode().replace("\r\n", "\n")


class CtlTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.socket = os.path.join(self.directory.name, "vm.sock")
        config = os.path.join(self.directory.name, "vm.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        self.server = subprocess.Popen([RINGSIDE, "serve", "--api-sock", self.socket],
                                       stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + LIMIT
        while not is_served(self.socket) and time.monotonic() < end:
            time.sleep(0.01)
        self.config = config

    def tearDown(self):
        self.server.kill()
        self.server.wait()
        self.server.stderr.close()
        self.directory.cleanup()

    def ctl(self, *words, **options):
        return run("ctl", self.socket, *words, **options)

    def done(self, *words):
        result = self.ctl(*words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def refused(self, code, says, *words):
        result = self.ctl(*words)
        self.assertEqual((result.returncode, result.stdout), (code, ""), words)
        self.assertRegex(result.stderr, f"^ringside: error: .*{says}.*\n$")

    def start(self):
        self.done("set-config", self.config)
        self.done("start")

    def test_a_machine_from_its_configuration_to_its_end(self):
        self.assertEqual(json.loads(self.done("machine"))["state"], "not-started")
        self.start()
        following = subprocess.Popen([RINGSIDE, "ctl", self.socket, "events", "--from", "0"],
                                     stdout=subprocess.PIPE, text=True)
        events = [json.loads(following.stdout.readline())["event"]]  # it follows before the end comes
        self.assertEqual(json.loads(self.done("config"))["disks"][0]["id"], "data")
        self.done("pause", "--patience", "10s")
        self.assertEqual(json.loads(self.done("machine"))["state"], "paused")
        self.done("resume")
        self.assertEqual(json.loads(self.done("add-iothread", "--id", "fast")), {"id": "fast"})
        self.done("change-iothread", "fast", "--poll", "fixed", "--max", "20us")
        self.assertEqual(json.loads(self.done("iothread", "fast"))["poll"]["max_ns"], 20000)
        self.done("move-queue", "data", "0", "--iothread", "fast")
        self.assertEqual(json.loads(self.done("disk", "data"))["queues"][0]["io_thread"], "fast")
        self.done("set-throttle", "data", "--iops-total", "90000", "--bps-read", "100M")
        self.done("set-throttle", "data", "--iops-total", "0")
        self.assertEqual(json.loads(self.done("disk", "data"))["throttle"], {"bps-read": "100M"})
        self.done("set-trace", "data", "--on", "on")
        operation = json.loads(self.done("latencies", "data", "--newest", "3", "--no-wait"))
        self.assertEqual(operation["call"], "latencies")
        self.assertIn("# TYPE ringside_", self.done("metrics"))
        self.done("shut-down", "--limit", "10ms")
        events += [json.loads(line)["event"] for line in following.stdout]
        following.stdout.close()
        self.assertEqual(following.wait(LIMIT), 0)
        self.assertEqual((events[0], events[-1]), ("started", "ended"))
        self.assertEqual(self.server.wait(LIMIT), 0)
        self.assertFalse(os.path.exists(self.socket))

    def test_words_that_are_no_text(self):
        self.refused(2, "not UTF-8", "save", "caf\udce9")
        self.refused(2, "not UTF-8", "exec", "--command", "caf\udce9")

    def test_help_names_the_socket(self):
        shown = self.ctl("pause", "--help").stdout
        self.assertIn("ringside ctl SOCKET pause", shown)
        self.assertIn("ringside ctl vm.sock pause --patience", shown)
        self.assertNotIn("vm.sock disks", shown)
        result = run("ctl", "machine")
        self.assertEqual(result.returncode, 2)
        self.assertIn("'ringside ctl vm.sock machine'", result.stderr)
        self.refused(2, "'a' is unknown; see 'ringside ctl SOCKET pause --help'", "pause", "a")

    # A file server that does not answer, which nobody can stop waiting for.
    def test_a_path_that_is_not_answered_for_holds_nothing_up(self):
        place = os.path.join(self.directory.name, "silent")
        os.mkdir(place)
        try:
            fuse = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            self.skipTest(f"no /dev/fuse here: {error}")
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"silent", place.encode(), b"fuse", 0, options) != 0:
            os.close(fuse)
            self.skipTest(f"no FUSE here: {os.strerror(ctypes.get_errno())}")
        try:
            config = os.path.join(self.directory.name, "silent.json")
            with open(config, "w", encoding="utf-8") as file:
                json.dump({"kernel": "k", "disks": [{"path": place + "/disk"}]}, file)
            self.done("set-config", config, "--no-wait")
            self.server.terminate()
            self.assertEqual(self.server.wait(LIMIT), -signal.SIGTERM)
        finally:
            libc.umount2(place.encode(), 2)  # MNT_DETACH
            os.close(fuse)

    def test_saved_and_gone_on_with(self):
        self.start()
        place = os.path.join(self.directory.name, "snap")
        self.refused(2, "/dev/null/snap", "save", "/dev/null/snap")
        self.assertEqual(json.loads(self.done("machine"))["state"], "running")
        self.refused(2, "with track=on first", "save", place, "--difference", "on")
        self.done("save", place, "--track", "on")
        self.assertEqual(json.loads(self.done("machine"))["state"], "running")
        self.refused(2, "no snapshot yet", "save", place)
        self.done("pause")
        self.done("save", place + "2", "--stop", "on", "--difference", "on")
        self.assertEqual(self.server.wait(LIMIT), 0)
        info = json.loads(run("snapshot", "info", place, "--json").stdout)
        self.assertEqual((info["cpus"], info["memory"], info["devices"]), (1, 64 << 20, ["data", "rng"]))
        self.assertIsNone(info["difference"])
        identity = info["identity"]
        self.assertEqual(run("snapshot", "verify", place + "2").returncode, 0)
        info = json.loads(run("snapshot", "info", place + "2", "--json").stdout)
        self.assertGreater(info["difference"]["pages"], 0)
        self.assertIn(f"a difference of {info['difference']['pages']} pages to {identity}",
                      run("snapshot", "info", place + "2").stdout)
        self.assertIn("snapshot merge", run("run", "--restore", place + "2").stderr)
        self.assertEqual(run("snapshot", "merge", place + "2", place, "--to", place + "3").returncode, 0)
        for option, value, says in (("--memory", "1G", "the saved machine has 67108864 bytes"),
                                    ("--cpus", "3", "the saved machine has 1"),
                                    ("--cmdline", "quiet", "a saved one has booted")):
            result = run("run", "--restore", place + "3", "--disk", "type=null,size=64M,id=data", option, value)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(says, result.stderr)
        result = run("run", "--restore", place + "3", "--serial", "none")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("was a disk when the machine was saved, and is", result.stderr)
        with subprocess.Popen([RINGSIDE, "run", "--restore", place + "3", "--disk",
                               "type=null,size=64M,id=data", "--serial", "none", "--api-sock",
                               self.socket], stderr=subprocess.PIPE) as machine:
            while self.ctl("machine").returncode != 0 and machine.poll() is None:
                time.sleep(0.01)
            shown = json.loads(self.done("machine"))
            self.assertEqual((shown["cpus"], shown["memory"]), (1, 64 << 20))
            self.assertEqual(json.loads(self.done("config"))["memory"], "64M")
            before = json.loads(self.done("disk", "data"))["queues"][0]["reads"]
            while json.loads(self.done("disk", "data"))["queues"][0]["reads"] == before:
                time.sleep(0.01)
            self.done("stop")
            self.assertEqual(machine.wait(LIMIT), 0, machine.stderr.read())
        with open(os.path.join(place, "memory"), "r+b") as file:
            file.write(b"x" * 8)
        result = run("snapshot", "verify", place)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("another content", result.stderr)

    def test_people_get_tables(self):
        self.start()
        self.assertRegex(on_terminal("ctl", self.socket, "machine"), "(?m)^state +running$")
        table = on_terminal("ctl", self.socket, "iothreads")
        self.assertRegex(table, r"(?m)^id +waiter +signal.*\n^io0 +\w+ +cost")
        self.assertIn("sleep_cost:", on_terminal("ctl", self.socket, "explain-iothread", "io0"))
        self.assertEqual(on_terminal("ctl", self.socket, "operations", "--json")[0], "[")

    def test_errors_are_one_line_and_a_code(self):
        self.refused(2, "has not started", "pause")
        self.refused(2, "no kernel is configured", "start")
        self.refused(2, "cannot read '/nowhere'", "set-config", "/nowhere")
        self.refused(2, "line 1", "set-config", "/etc/passwd")
        self.start()
        self.refused(2, "it starts once", "start")
        self.refused(2, "--patience '5' is not a time", "pause", "--patience", "5")
        self.refused(2, "did you mean 'data'", "disk", "date")
        self.refused(2, "has no queue 7", "move-queue", "data", "7", "--iothread", "io0")
        self.refused(2, "did you mean 'data'", "set-throttle", "date", "--iops-total", "5")
        self.refused(2, "is not above iops-total 0: .*give iops-total|has no average", "set-throttle",
                     "data", "--iops-total-max", "5")
        self.refused(2, "has no throttle groups", "set-group-throttle", "g", "--iops-total", "5")
        self.refused(2, "did you mean 'pause'", "pauze")
        self.refused(2, "--iothread", "move-queue", "data", "0")
        result = run("ctl", self.socket + "x", "machine")
        self.assertEqual(result.returncode, 2)
        self.assertIn("vm.sockx", result.stderr)

    def test_stopped_before_it_starts(self):
        self.done("stop")
        self.assertEqual(self.server.wait(LIMIT), 0)

    def test_a_signal_ends_a_server_that_waits(self):
        self.server.terminate()
        self.assertEqual(self.server.wait(LIMIT), -15)
        self.assertFalse(os.path.exists(self.socket))

    def test_what_is_already_served_is_not_taken(self):
        result = run("serve", "--api-sock", self.socket)
        self.assertEqual(result.returncode, 2)
        self.assertIn("vm.sock", result.stderr)
        self.done("machine")


class HostileServerTest(unittest.TestCase):
    """What a server says obeys no terminal, and does not hold the client."""

    def answer(self, response):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "vm.sock")
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen()

            def serve():
                connection, _ = listener.accept()
                connection.recv(65536)
                connection.sendall(response)
                connection.close()

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                return on_terminal("ctl", path, "machine")
            finally:
                thread.join(LIMIT)
                listener.close()

    def test_no_escapes(self):
        body = json.dumps({"state": "\033[2J", "\033]0;x\007": 1}).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.assertNotIn("\033", self.answer(head % len(body) + body))
        body = json.dumps({"error": "\033[2J"}).encode()
        refusal = self.answer((head % len(body)).replace(b"200 OK", b"400 Bad") + body)
        self.assertNotIn("\033[2J", refusal)
        self.assertNotIn("\033[2J", self.answer(b"\033[2J\r\n\r\n"))


class SlowServerTest(unittest.TestCase):
    """A server whose save takes a second."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "vm.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.requests = []
        self.is_over = False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def tearDown(self):
        self.is_over = True
        self.thread.join(LIMIT)
        self.listener.close()
        self.directory.cleanup()

    # Two connections at most: one waits for the end, and one asks how far it is.
    def serve(self):
        self.listener.settimeout(0.2)
        threads = []
        while not self.is_over:
            try:
                connection, _ = self.listener.accept()
            except TimeoutError:
                continue
            threads.append(threading.Thread(target=self.answer, args=(connection,)))
            threads[-1].start()
        for thread in threads:
            thread.join(LIMIT)

    def answer(self, connection):
        connection.settimeout(LIMIT)
        while request := connection.recv(65536).decode():
            self.requests.append(request)
            status, parts = b"200 OK", {"state": "running", "progress": {"done": 1 << 30, "of": 2 << 30}}
            if request.startswith("POST") or request.startswith("PUT"):
                status, parts = b"202 Accepted", {"state": "running"}
            elif "wait=60s" in request:
                time.sleep(1)
                parts = {"state": "done"}
            body = json.dumps({"id": 7, "call": "save"} | parts).encode()
            connection.sendall(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n%s" % (status, len(body), body))
        connection.close()

    def test_a_terminal_has_a_bar(self):
        for _ in range(5):  # a bar is left out where an answer takes more than 200 ms
            self.requests.clear()
            shown = on_terminal("ctl", self.path, "save", "snap")
            if "saving" in shown:
                break
        self.assertIn("saving: [" + "#" * 20 + " " * 20 + "]  50% of 2G", shown)
        self.assertTrue(shown.endswith("\r\033[K"), shown)
        self.assertIn("save?wait=200ms", self.requests[0])
        self.assertTrue(any("operations/7?wait=0" in each for each in self.requests[1:]))
        self.assertTrue(any("operations/7?wait=60s" in each for each in self.requests[1:]))

    def test_nobody_else_has(self):
        result = run("ctl", self.path, "save", "snap")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertIn("save?wait=60s", self.requests[0])


class CompletionTest(unittest.TestCase):
    def completed(self, *words):
        line = " ".join(f"'{word}'" for word in words)
        script = (f"source <('{RINGSIDE}' completion bash); COMP_WORDS=({line}); "
                  f"COMP_CWORD={len(words) - 1}; _ringside; echo \"${{COMPREPLY[@]}}\"")
        result = subprocess.run(["bash", "-c", script], capture_output=True, text=True,
                                timeout=LIMIT, check=True)
        return result.stdout.split()

    def test_words(self):
        self.assertEqual(sorted(self.completed("ringside", "co")), ["completion", "config"])
        self.assertIn("--iothread", self.completed("ringside", "run", "--io"))
        self.assertEqual(self.completed("ringside", "ctl", "vm.sock", "pa"), ["pause"])
        self.assertEqual(self.completed("ringside", "ctl", "vm.sock", "pause", "--pa"),
                         ["--patience"])
        self.assertIn("grow-shrink", self.completed("ringside", "ctl", "vm.sock",
                                                    "change-iothread", "io0", "--poll", "g"))
        self.assertEqual(self.completed("ringside", "run", "--kernel", "x"), [])  # files

    def test_zsh_has_one_too(self):
        self.assertIn("bashcompinit", run("completion", "zsh").stdout)
        self.assertEqual(run("completion", "tcsh").returncode, 2)


unittest.main(argv=sys.argv[:1])
