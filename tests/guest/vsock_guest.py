#!/usr/bin/python3
"""The bare-metal guest's vsock driver under Ringside, with programs of the host in processes of their own:
vsock_guest.py GUEST RINGSIDE CLIENT. Its jobs with every byte checked, ten thousand connections at the same
time, and its hostile drivers while programs of the host are hostile, too."""

import contextlib
import json
import os
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77
PATIENCE_S = 60  # four times less than its time-out
SERVICE, END, MIRROR = 5000, 5001, 4002  # vsock_order.h
MANY = 10_000
MANY_S = 40  # They take 3 s on a quiet machine.
DESCRIPTORS = MANY + 500

failures = []


class Machine:
    """Ringside with the guest and a vsock; as a context manager ends it."""

    def __init__(self, program, guest, path, words, options=""):
        self._path = path
        self._process = subprocess.Popen(
            [program, "run", "--kernel", guest, "--memory", "128M", "--vsock", f"cid=3,path={path}{options}",
             "--cmdline", words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def connect(self, port):
        """A connection of which nothing has come back yet."""
        one = socket.socket(socket.AF_UNIX)
        one.connect(self._path)  # It waits for room in the socket's queue, which one with a time-out does not.
        one.settimeout(PATIENCE_S)
        with contextlib.suppress(BrokenPipeError):  # One that is refused at once: read_line() finds that.
            one.sendall(b"CONNECT %d\n" % port)
        return one

    def connect_when_there(self, port):
        """The same of a machine that is only starting: returns one that the guest has accepted."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                one = self.connect(port)
                if read_line(one).startswith(b"OK "):
                    return one
            except OSError:
                pass
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError("nobody answers")
            time.sleep(0.01)

    def ends(self):
        """Whether it does soon."""
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return False
        return True

    def finish(self):
        """Its output, when it has ended by itself as it should."""
        output, errors = self._process.communicate(timeout=PATIENCE_S)
        if self._process.returncode != 0 or "FAIL" in output:
            raise AssertionError(f"status {self._process.returncode}\n{output[-3000:]}\n{errors[-2000:]}")
        return output, errors


def read_line(one):
    """What has come until its end, or until the connection was closed, however roughly."""
    line = b""
    with contextlib.suppress(ConnectionResetError):
        while not line.endswith(b"\n") and (byte := one.recv(1)):
            line += byte
    return line


def job_of(output):
    return next(json.loads(line) for line in output.splitlines() if line.startswith("{"))


def check_jobs(program, guest, path, client):
    """Each kind with the measuring client, every byte checked, polled and by interrupt."""
    with subprocess.Popen([client, "--path", path]) as process:
        try:
            wait_for_file(path + "_4001")  # made when it listens at the other
            for words in ("vsock=echo qd=1,16", "vsock=echo message=64k", "vsock=out", "vsock=out message=64k",
                          "vsock=out message=4000 qd=8", "vsock=flood qd=1,16"):
                for wait in ("poll", "irq"):
                    command = f"{words} verify=1 runtime=400ms wait={wait}"
                    with Machine(program, guest, path, command) as machine:
                        output, _ = machine.finish()
                    check_job(command, output)
        finally:
            process.kill()


def wait_for_file(path):
    deadline = time.monotonic() + PATIENCE_S
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise AssertionError(f"there is no {path}")
        time.sleep(0.01)


def check_job(command, output):
    jobs = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    for job in jobs:
        bad = "error" in job or job["errors"] or job["mismatches"] or not job["all_ios"]
        if bad or (job["vsock"] == "out" and job["client_bytes"] != job["sent_bytes"]):
            raise AssertionError(f"{command}: {job}")
    if not jobs:
        raise AssertionError(f"{command}: no job\n{output}")


def check_many(program, guest, path, _client):
    """Ten thousand connections at the same time, each of which echoes; one more is refused."""
    begin = time.monotonic()
    with Machine(program, guest, path, f"vsock=serve runtime={PATIENCE_S}s",
                 f",max-connections={MANY}") as machine:
        machine.connect_when_there(SERVICE).close()
        with contextlib.ExitStack() as stack:
            every = []
            for first in range(0, MANY, 500):  # So many at a time wait for their answer.
                some = [stack.enter_context(machine.connect(SERVICE)) for _ in range(first, first + 500)]
                for number, one in enumerate(some):
                    if not read_line(one).startswith(b"OK "):
                        raise AssertionError(f"connection {first + number} is refused")
                every += some
            for number, one in enumerate(every):
                one.sendall(b"message %8d" % number)
            for number, one in enumerate(every):
                came = one.recv(16, socket.MSG_WAITALL)
                if came != b"message %8d" % number:
                    raise AssertionError(f"connection {number} has {came}")
            with machine.connect(SERVICE) as one:
                if read_line(one):
                    raise AssertionError("there are more than max-connections")
        took = time.monotonic() - begin
        # Until some have gone there is no room for this one.
        while not machine.ends():
            with contextlib.suppress(OSError), machine.connect(END) as end:
                read_line(end)
            if time.monotonic() > begin + MANY_S:
                raise AssertionError("the guest is not told to end")
        output, errors = machine.finish()
    job = job_of(output)
    if job["errors"] or "error" in job or job["most_streams"] < MANY:
        raise AssertionError(str(job))
    if errors.count("max-connections") != 1:
        raise AssertionError(f"not one line of the log:\n{errors}")
    if took > MANY_S:
        raise AssertionError(f"they took {took:.0f} s, {MANY_S} at most")
    print(f"{MANY} connections: {took:.1f} s")


class Host(threading.Thread):
    """A program that sends back what comes to the mirror's port, and one that is hostile to the guest and
    to the machine."""

    def __init__(self, path):
        super().__init__()
        self._path = path
        self._stopped = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._mirror = socket.socket(socket.AF_UNIX)
        self._mirror.bind(f"{path}_{MIRROR}")
        self._mirror.listen(1024)
        self._mirror.setblocking(False)
        self._selector.register(self._mirror, selectors.EVENT_READ)
        self._pests = []
        self._count = 0

    def stop(self):
        self._stopped.set()
        self.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        for pest in self._pests:
            pest.close()
        os.unlink(f"{self._path}_{MIRROR}")

    def run(self):
        while not self._stopped.is_set():
            for key, _ in self._selector.select(0.005):
                if key.fileobj is self._mirror:
                    one, _ = self._mirror.accept()
                    one.setblocking(False)
                    self._selector.register(one, selectors.EVENT_READ)
                else:
                    self._send_back(key.fileobj)
            self._pester()

    def _send_back(self, one):
        try:
            data = one.recv(65536)
            if data:
                one.send(data)
                return
        except BlockingIOError:
            return  # It does not read: so be it.
        except OSError:
            pass
        self._selector.unregister(one)
        one.close()

    def _pester(self):
        """One more that says something else, and another that goes."""
        lines = (b"CONNECT 5000\n", b"CONNECT 0\nhello", b"CONNECT 4294967295\n", b"CONNECT 1\n" + b"x" * 70000,
                 b"CONNECT 99999999999999999999\n", b"CONNECT -1\n", b"CONN", b"", b"\n", b"\0" * 64,
                 b"CONNECT 5000\r\n", b"GET / HTTP/1.1\r\n")
        self._count += 1
        try:
            pest = socket.socket(socket.AF_UNIX)
            pest.setblocking(False)
            pest.connect(self._path)
            self._pests.append(pest)
            pest.send(lines[self._count % len(lines)])
            if self._count % 3 == 0:
                pest.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # It is only starting, or has ended.
        if len(self._pests) > 40:
            self._pests.pop(self._count * 7 % 40).close()


def check_hostile(program, guest, path, _client):
    host = Host(path)
    host.start()
    try:
        for seed in (1, 2):
            with Machine(program, guest, path, f"hostile-vsock=all seed={seed}") as machine:
                output, _ = machine.finish()
            count = output.count(" ok\n") - output.count("rsdp")
            if count < 9:
                raise AssertionError(f"{count} hostile drivers have done no harm, of 9\n{output}")
    finally:
        host.stop()


def main():
    guest, program, client = sys.argv[1:]
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("SKIP there is no /dev/kvm on this host")
        return SKIPPED
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < DESCRIPTORS:
        print(f"SKIP a process may have {most} descriptors, {DESCRIPTORS} are needed")
        return SKIPPED
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, most))
    for check in (check_jobs, check_many, check_hostile):
        with tempfile.TemporaryDirectory() as directory:
            try:
                check(program, guest, f"{directory}/vm.sock", client)
                print(f"{check.__name__}: ok")
            except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                failures.append(f"{check.__name__}: {error!r}")
    print("".join(f"FAIL: {failure}\n" for failure in failures), end="")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
