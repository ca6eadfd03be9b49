#!/usr/bin/python3
"""Runs inside the lab, beside a guest whose init is the agent: what a user does with `ringside exec` and
`ringside cp`, and streams that the agent has no part in (agent_guest.sh has their other ends).

    agent_checks.py RINGSIDE API WORK COMMANDS AT_ONCE MIB CONNECTIONS [CHECK...]

Without the names of checks all are made.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../agent"))
import agent_wire as wire  # noqa: E402

RINGSIDE, API, WORK = sys.argv[1:4]
COMMANDS, AT_ONCE, MIB, CONNECTIONS = map(int, sys.argv[4:8])
CHOSEN = sys.argv[8:]
VSOCK = f"{WORK}/vm.vsock"
LIMIT = 120 + MIB  # seconds, for anything
PIECE = 1 << 20


def start(*words, options=(), **streams):
    return subprocess.Popen([RINGSIDE, "exec", "--vsock", VSOCK, *options, "--", *words], **streams)


def run(*words, options=(), code=0, **streams):
    """A command's output; fails if it does not end with `code`."""
    with start(*words, options=options, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
               **streams) as process:
        output, errors = process.communicate(timeout=LIMIT)
    require(process.returncode == code, f"{words} ended with {process.returncode}: {errors}")
    return output


def cp(*words):
    done = subprocess.run([RINGSIDE, "cp", "--vsock", VSOCK, *words], capture_output=True,
                          timeout=LIMIT, check=False)
    require(done.returncode == 0, f"cp {words} ended with {done.returncode}: {done.stderr}")


def ctl(*words):
    done = subprocess.run([RINGSIDE, "ctl", API, *words], capture_output=True, timeout=LIMIT,
                          check=False)
    require(done.returncode == 0, f"ctl {words}: {done.stderr}")
    return json.loads(done.stdout) if done.stdout else None


def require(holds, what):
    if not holds:
        raise AssertionError(what)


def eventually(holds, what, seconds=LIMIT):
    end = time.monotonic() + seconds
    while not holds():
        require(time.monotonic() < end, f"{what}: not within {seconds} s")
        time.sleep(0.05)


def checksum(path):
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            total.update(piece)
    return total.hexdigest()


def one_after_the_other():
    """Each command's output is its own."""
    for number in range(COMMANDS):
        require(run("echo", str(number)) == b"%d\n" % number, f"command {number}")


def at_once():
    processes = [start("sh", "-c", f"read line; echo $line; exit {number % 100}", options=("-i",),
                       stdin=subprocess.PIPE, stdout=subprocess.PIPE) for number in range(AT_ONCE)]
    # All of them run before the first is told to end.
    eventually(lambda: len(run("pidof", "sh").split()) >= AT_ONCE, "all run")
    for number, process in enumerate(processes):
        output, _ = process.communicate(b"%d\n" % number, timeout=LIMIT)
        require(output == b"%d\n" % number, f"{number} of them said {output}")
        require(process.returncode == number % 100, f"{number} ended with {process.returncode}")


def codes_and_signals():
    run("sh", "-c", "exit 255", code=255)
    run("sh", "-c", "kill -9 $$", code=137)
    run("no-such-command", code=127)
    run("/etc", code=126)
    run("true", options=("--workdir", "/no/such"), code=125)
    output = run("sh", "-c", "pwd; echo $A; id -u", options=("--workdir", "/proc", "--env", "A=b c",
                                                            "--user", "7:8"))
    require(output == b"/proc\nb c\n7\n", output)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = start("sh", "-c", "echo ready; exec sleep 1000", stdout=subprocess.PIPE)
        require(process.stdout.readline() == b"ready\n", "a command that is to be signalled")
        process.send_signal(number)
        require(process.wait(LIMIT) == 128 + number, f"signal {number}: {process.returncode}")
        process.stdout.close()
    process = start("sh", "-c", "echo $$; exec sleep 1001", stdout=subprocess.PIPE)
    process.stdout.readline()
    process.kill()
    process.wait(LIMIT)
    process.stdout.close()
    eventually(lambda: b"sleep 1001" not in run("ps"), "the end of a command whose client was killed")


def files():
    cp(f"{WORK}/data", "guest:/tmp/data")
    require(run("sha256sum", "/tmp/data").split()[0].decode() == DATA_SUM, "what was put")
    cp("guest:/tmp/data", f"{WORK}/back")
    require(checksum(f"{WORK}/back") == DATA_SUM, "what was got")
    os.unlink(f"{WORK}/back")
    run("rm", "/tmp/data")
    tree = f"{WORK}/tree"
    os.makedirs(f"{tree}/a/b", exist_ok=True)
    with open(f"{tree}/a/b/file", "w", encoding="utf-8") as file:
        file.write("text")
    os.chmod(f"{tree}/a/b/file", 0o640)
    if not os.path.lexists(f"{tree}/a/link"):
        os.symlink("b/file", f"{tree}/a/link")
    cp("-r", tree, "guest:/tmp")
    require(run("cat", "/tmp/tree/a/link") == b"text", "a link in a tree")
    cp("-r", "guest:/tmp/tree", f"{WORK}/tree-back")
    require(os.stat(f"{WORK}/tree-back/a/b/file").st_mode & 0o777 == 0o640, "permissions")


def stream():
    """As much in and out again through one command."""
    with open(f"{WORK}/data", "rb") as data:
        process = start("cat", options=("-i",), stdin=data, stdout=subprocess.PIPE)
        total = hashlib.sha256()
        while piece := process.stdout.read(PIECE):
            total.update(piece)
        require(process.wait(LIMIT) == 0, "cat")
        process.stdout.close()
    require(total.hexdigest() == DATA_SUM, "what came back")


class Terminal:
    """A command on a terminal of its own here, as if typed by hand."""

    def __init__(self, *words):
        self.ours, its = os.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        self.process = start(*words, options=("-it",), stdin=its, stdout=its, stderr=its,
                             start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(its)
        self.text = b""

    def type(self, text, wanted):
        """Waits for what it makes the command say, behind what was said before."""
        os.write(self.ours, text)
        self.wait(wanted)

    def wait(self, wanted):
        end = time.monotonic() + 30
        with selectors.DefaultSelector() as selector:
            selector.register(self.ours, selectors.EVENT_READ)
            while wanted not in self.text:
                require(time.monotonic() < end, f"{wanted} was not said: {self.text}")
                if selector.select(1):
                    self.text += os.read(self.ours, 4096)
        self.text = self.text.partition(wanted)[2]

    def end(self):
        code = self.process.wait(30)
        os.close(self.ours)
        return code


def terminal_is_taken():
    """Whether a command of the shell's runs in front: proc(5), pgrp, session and tpgid of stat."""
    for line in run("sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null; true").decode().splitlines():
        state, _, group, session, _, front = line.rpartition(") ")[2].split()[:6]
        if state != "T" and front == group != session:
            return True
    return False


def terminal():
    shell = Terminal("sh")
    shell.type(b"stty size; tty\r", b"33 99")
    shell.wait(b"/dev/pts/")
    # Job control: a command is stopped, listed, goes on and is interrupted, and the shell stays.
    shell.type(b"echo sta''rted; sleep 1000\r", b"started")
    eventually(terminal_is_taken, "the terminal's being the command's", 30)  # so that it can be stopped
    shell.type(b"\x1a", b"Stopped")
    shell.type(b"jobs\r", b"sleep 1000")
    shell.type(b"fg; echo int''errupted\r", b"sleep 1000")
    eventually(terminal_is_taken, "the terminal's being the command's again", 30)
    shell.type(b"\x03", b"#")
    fcntl.ioctl(shell.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    eventually(lambda: run("sh", "-c", "stty size </dev/pts/0") == b"40 120\n", "the new size", 30)
    os.write(shell.ours, b"exit 7\r")
    require(shell.end() == 7, "the shell's exit code")


def clock_and_randomness():
    with wire.Wire(VSOCK) as client:
        for message in (wire.frame(wire.CLOCK, struct.pack("<Q", 2_000_000_000 * 10**9)),
                        wire.frame(wire.ENTROPY, os.urandom(64))):
            client.send(message)
            require(client.receive()[0] == wire.DONE, "the agent's answer")
        year = run("date", "-u", "+%Y")
        require(year == b"2033\n", f"the guest's year is {year}")
        client.send(wire.frame(wire.CLOCK, struct.pack("<Q", time.time_ns())))
        require(client.receive()[0] == wire.DONE, "the agent's answer")


def control_socket():
    """What the machine's own process asks its guest for."""
    end = ctl("exec", "--command", "uname -r")
    require((end["how"], end["output"].encode()) == ("exited", run("uname", "-r")), end)
    run("date", "-s", "2033-01-01 00:00")
    ctl("set-clock")
    year = int(run("date", "-u", "+%Y"))
    require(abs(year - time.gmtime().tm_year) <= 1, f"the guest's year is {year}")
    ctl("renew-randomness")
    ctl("copy-in", "--from", f"{WORK}/data", "--to", "/tmp/data")
    ctl("copy-out", "--from", "/tmp/data", "--to", f"{WORK}/back")
    require(checksum(f"{WORK}/back") == DATA_SUM, "what was copied in and out")
    os.unlink(f"{WORK}/back")
    run("rm", "/tmp/data")


def agent_events():
    """Those that the machine has told of its agent."""
    with open(f"{WORK}/events", encoding="utf-8") as file:
        told = [json.loads(line)["event"] for line in file if line.endswith("\n")]
    return [event for event in told if event.startswith("agent")]


def a_client_that_never_reads():
    with wire.Wire(VSOCK) as idle:
        idle.send(wire.command("cat", "/dev/zero"))
        require(idle.receive()[0] == wire.STARTED, "cat has not started")
        time.sleep(1)  # for all that fits between there and here
        stream()


def paused_and_moved():
    """The machine in the middle of a copy."""
    ends = threading.Event()
    rounds = 0

    def copy():
        try:
            cp(f"{WORK}/data", "guest:/tmp/data")
        finally:
            ends.set()

    copying = threading.Thread(target=copy)
    copying.start()
    while not ends.is_set() or rounds == 0:
        for words in (("pause",), ("resume",), ("move-queue", "vsock0", "0", "--iothread", "b"),
                      ("pause",), ("move-queue", "vsock0", "0", "--iothread", "a"), ("resume",)):
            ctl(*words)
        rounds += 1
    copying.join()
    require(run("sha256sum", "/tmp/data").split()[0].decode() == DATA_SUM, "what was put")
    run("rm", "/tmp/data")
    print(f"  {rounds} rounds of two pauses and two moves")


def connect(port):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(LIMIT)
    client.connect(VSOCK)
    client.sendall(b"CONNECT %d\n" % port)
    return client


def accepted(client):
    answer = b""
    while not answer.endswith(b"\n"):
        piece = client.recv(1)
        require(piece, "the guest has refused a connection")
        answer += piece
    require(answer.startswith(b"OK "), answer)


def many_connections():
    """All at once, of which each has its own bytes sent back."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(CONNECTIONS):
            clients.append(stack.enter_context(connect(1024)))
            accepted(clients[-1])
        for number, client in enumerate(clients):
            client.sendall(b"%8d" % number)
        for number, client in enumerate(clients):
            answer = b""
            while len(answer) < 8:
                answer += client.recv(8 - len(answer))
            require(answer == b"%8d" % number, f"connection {number} said {answer}")
    # socat ends, once per connection, when the guest's kernel says so.
    eventually(lambda: run("pidof", "socat").count(b" ") < 10, "the end of all")


def half_close():
    """socat in the guest sees the end of what is sent, and its answer still arrives."""
    with connect(1025) as client:
        accepted(client)
        with open(f"{WORK}/data", "rb") as data:
            client.sendfile(data)
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    require(answer.split()[0].decode() == DATA_SUM, f"socat in the guest says {answer}")
    # The guest connects, and ends its half first.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(LIMIT)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{VSOCK}_9000")  # of an attempt before
        listener.bind(f"{VSOCK}_9000")
        listener.listen()
        process = start("sh", "-c", "seq 100000 | socat -t 60 - VSOCK-CONNECT:2:9000",
                        stdout=subprocess.PIPE)
        server, _ = listener.accept()
        with server:
            server.settimeout(LIMIT)
            received = b"".join(iter(lambda: server.recv(PIECE), b""))
            require(received == b"".join(b"%d\n" % n for n in range(1, 100001)), "what it sent")
            server.sendall(b"an answer")
        require(process.communicate(timeout=LIMIT)[0] == b"an answer", "what it received")


def device_reset():
    """The guest's driver lets the device go and takes it again: connections end, and new ones do."""
    driver = "/sys/bus/virtio/drivers/vmw_vsock_virtio_transport"
    # In a session of its own: it outlives the command, whose client is gone with the device.
    script = "d=$(ls -d virtio*); sleep 1; echo $d >unbind; sleep 1; echo $d >bind"
    run("sh", "-c", f"cd {driver}; setsid sh -c '{script}' & exec sleep 1000", code=125)
    eventually(lambda: subprocess.run([RINGSIDE, "exec", "--vsock", VSOCK, "--", "true"],
                                      capture_output=True, check=False).returncode == 0,
               "the agent after the reset", 60)
    require(agent_events() == ["agent-up"], f"it was there all the time: {agent_events()}")


CHECKS = (one_after_the_other, at_once, codes_and_signals, files, stream, terminal,
          clock_and_randomness, control_socket, a_client_that_never_reads, paused_and_moved, many_connections,
          half_close, device_reset)

failures = 0
with open(f"{WORK}/data", "wb") as output:
    for _ in range(MIB):
        output.write(os.urandom(PIECE))
DATA_SUM = checksum(f"{WORK}/data")
eventually(lambda: os.path.exists(VSOCK), "the machine's vsock")
eventually(lambda: subprocess.run([RINGSIDE, "exec", "--vsock", VSOCK, "--", "true"], check=False,
                                  capture_output=True).returncode == 0, "the agent", 60)
eventually(lambda: agent_events() == ["agent-up"], "that the agent is up", 60)
for check in [each for each in CHECKS if not CHOSEN or each.__name__ in CHOSEN]:
    began = time.monotonic()
    try:
        check()
    except (AssertionError, OSError, subprocess.SubprocessError, UnicodeError, IndexError) as error:
        print(f"FAIL: {check.__name__}: {error!r}"[:2000])
        failures += 1
    print(f"{check.__name__}: {time.monotonic() - began:.1f} s", flush=True)
sys.exit(1 if failures else 0)
