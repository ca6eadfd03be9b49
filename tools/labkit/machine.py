"""L1 itself: QEMU, and the streams between it and our standard input, output and error.

Everything runs on one thread. Each stream is a socket pair with a virtio port at its other end, so
that bytes arrive as written; L1's kernel has the serial port for itself.
"""

import ctypes
import os
import select
import signal
import socket
import subprocess
import tempfile
import termios
import time
import tty

from . import nvme
from .common import LabError, last_line, progress
from .qemu import qemu_command

# At most this many bytes are written at once: select() promises no more than this to a pipe.
CHUNK_BYTES = select.PIPE_BUF
STDIN, STDOUT, STDERR = 0, 1, 2

# L1 sends a sign of life from each processor every other second. The emulator now and then leaves
# one without its timer interrupts, and whatever waits there waits for ever.
SILENCE_SECONDS = 45

# Numbers of the virtio ports, as run.sh knows them; port 0 has to be the console.
PORTS = {"console": 0, "control": 1, "stdin": 2, "stdout": 3, "stderr": 4}

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class L1Stopped(LabError):
    """L1, or one of its processors, is gone before the command has ended."""


class TimeLimit(Exception):
    """The time given with --timeout is over."""


class Streams:
    """How the command's standard streams are connected, which depends on what ours are."""

    def __init__(self):
        self.terminal = os.isatty(STDIN)
        self.merge_stderr = _same_file(STDOUT, STDERR)  # Keeps the two in their order.

    def ports(self):
        if self.terminal:
            return ["control", "console"]
        return ["control", "stdin", "stdout"] + ([] if self.merge_stderr else ["stderr"])

    def terminal_settings(self):
        """Returns the stty arguments for the command's terminal."""
        if not self.terminal:
            return ""
        # Our terminal is raw, so L1's has to end lines in CR LF; a file wants what was written.
        settings = "sane" if os.isatty(STDOUT) else "sane -opost"
        size = os.get_terminal_size(STDIN)
        return f"{settings} rows {size.lines} cols {size.columns}" if size.lines else settings


def _same_file(first, second):
    try:
        return os.path.samestat(os.fstat(first), os.fstat(second))
    except OSError:
        return True  # One of them is closed.


class MarkedStream:
    """Passes on what comes before a marker, which may arrive in pieces."""

    def __init__(self, marker):
        self._marker = marker
        self._held = b""
        self.ended = False

    def feed(self, data):
        data = self._held + data
        before, found, _ = data.partition(self._marker)
        if found:
            self.ended = True
            return before
        keep = next(length for length in range(min(len(self._marker) - 1, len(data)), -1, -1)
                    if data.endswith(self._marker[:length]))
        self._held = data[len(data) - keep:]
        return data[:len(data) - keep]


class Machine:
    """One run of L1. A context manager: after it, QEMU is gone and our terminal is as before."""

    def __init__(self, arguments, streams, marker, verbose, time_limit, processors):
        self._streams = streams
        self._verbose = verbose
        self._time_limit = time_limit
        self._deadline = time.monotonic() + time_limit if time_limit else None
        self._alive = dict.fromkeys(range(processors), time.monotonic())
        self._saved_terminal = None
        self._stdin_open = not streams.terminal
        self._pending_input = b""
        self._control_line = b""
        self._sinks = {}  # Socket -> (MarkedStream, file descriptor of ours).
        self.kernel_log = bytearray()
        self.started = False
        self.status = None
        self.missing_results = set()
        self._start(arguments, marker)

    def _start(self, arguments, marker):
        ours, theirs = {}, {}
        for name in ["kernel-log", *self._streams.ports()]:
            ours[name], theirs[name] = socket.socketpair()
        command = list(arguments)
        for name, end in theirs.items():
            command += ["-chardev", f"socket,id=lab-{name},fd={end.fileno()}"]
            if name == "kernel-log":
                command += ["-serial", "chardev:lab-kernel-log"]
            else:
                device = "virtconsole" if name == "console" else "virtserialport"
                command += ["-device", f"{device},bus=lab.0,nr={PORTS[name]},chardev=lab-{name}"]
        self._qemu_messages = tempfile.TemporaryFile()
        self._qemu = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=self._qemu_messages, preexec_fn=_die_with_parent,
            pass_fds=[end.fileno() for end in theirs.values()],
            start_new_session=True)  # Keys pressed in our terminal are not for QEMU.
        for end in theirs.values():
            end.close()
        self._log, self._control = ours["kernel-log"], ours["control"]
        self._input = ours.get("stdin") or ours["console"]
        for name, descriptor in (("console", STDOUT), ("stdout", STDOUT), ("stderr", STDERR)):
            if name in ours:
                self._sinks[ours[name]] = (MarkedStream(marker), descriptor)
        self._sources = {self._log: self._read_log, self._control: self._read_control,
                         **{source: lambda source=source: self._read_output(source)
                            for source in self._sinks}}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._saved_terminal is not None:
            termios.tcsetattr(STDIN, termios.TCSANOW, self._saved_terminal)
        self._qemu.terminate()  # Lets it flush the images given with --qemu-arg.
        try:
            self._qemu.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self._qemu.kill()
            self._qemu.wait()
        self._qemu_messages.close()

    def run(self):
        """Passes everything on until the command has ended; returns its exit status."""
        while any(source in self._sources for source in (self._control, *self._sinks)):
            self._pass_on_once()
        if self.status is None:
            raise L1Stopped(self._why_qemu_ended())
        return self.status

    def _log_tail(self):
        """Returns the end of the kernel log, with the cause rather than the trace if it has one."""
        lines = self.kernel_log.decode(errors="replace").replace("\r", "").splitlines()
        causes = [number for number, line in enumerate(lines) if "Kernel panic" in line]
        end = causes[-1] + 10 if causes else len(lines)
        return "\n".join(lines[:end][-20:])

    def _why_qemu_ended(self):
        while self._log in self._sources:
            self._pass_on_once()
        qemu_status = self._qemu.wait()
        if qemu_status != 0:
            self._qemu_messages.seek(0)
            message = last_line(self._qemu_messages.read().decode(errors="replace"))
            return f"QEMU ended with status {qemu_status}: {message}"
        when = "while the command ran" if self.started else "before it could start the command"
        return (f"L1 stopped {when}; its kernel log (all of it: build/lab/kernel.log) ended with:\n"
                f"{self._log_tail()}")

    def _pass_on_once(self):
        readable, writable = list(self._sources), []
        if self._pending_input:
            writable.append(self._input)
        elif self.started and self._stdin_open:
            readable.append(STDIN)
        readable, writable, _ = select.select(readable, writable, [], self._time_left())
        for source in readable:
            if source == STDIN:
                self._read_stdin()
            else:
                self._sources[source]()
        if writable:
            self._send_input()
        # After reading, so that nothing is held against L1 when we were stopped ourselves (^Z).
        self._check_signs_of_life()

    def _time_left(self):
        silent_at = min(self._alive.values()) + SILENCE_SECONDS
        if self._deadline is None:
            return max(0, silent_at - time.monotonic())
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeLimit(f"time limit of {self._time_limit:g} s reached (--timeout), "
                            f"{self._where()}")
        return min(left, max(0, silent_at - time.monotonic()))

    def _where(self):
        return "the command was still running" if self.started else "L1 had not come up"

    def _check_signs_of_life(self):
        for processor, last in self._alive.items():
            if time.monotonic() >= last + SILENCE_SECONDS:
                raise L1Stopped(f"L1's processor {processor} gave no sign of life for "
                                f"{SILENCE_SECONDS} s, {self._where()}")

    def _receive(self, source):
        """Returns what has arrived; at the end, which is QEMU's end, stops listening."""
        try:
            data = source.recv(CHUNK_BYTES)
        except ConnectionResetError:  # QEMU ended with input unread.
            data = b""
        if not data:
            del self._sources[source]
        return data

    def _read_log(self):
        data = self._receive(self._log)
        self.kernel_log += data
        if self._verbose:
            self._write(STDERR, data)

    def _read_control(self):
        received = self._control_line + self._receive(self._control)
        *lines, self._control_line = received.split(b"\n")
        for word, *values in (line.decode().split() for line in lines):
            if word == "alive":
                self._alive[int(values[0])] = time.monotonic()
            elif word == "started":
                self._command_started()
            elif word == "missing":
                self.missing_results.add(int(values[0]))
            elif word == "exit":
                self.status = int(values[0])
                self._sources.pop(self._control, None)

    def _command_started(self):
        progress("")
        self.started = True
        if self._streams.terminal:
            self._stdin_open = True
            self._saved_terminal = termios.tcgetattr(STDIN)
            tty.setraw(STDIN, termios.TCSANOW)

    def _read_output(self, source):
        stream, descriptor = self._sinks[source]
        data = stream.feed(self._receive(source))
        if stream.ended:
            self._sources.pop(source, None)
        self._write(descriptor, data)

    def _write(self, descriptor, data):
        while data:
            # A reader that has stopped reading must not keep us from seeing the time limit.
            if select.select([], [descriptor], [], self._time_left())[1]:
                data = data[os.write(descriptor, data[:CHUNK_BYTES]):]

    def _read_stdin(self):
        try:
            self._pending_input = os.read(STDIN, CHUNK_BYTES)
        except OSError:
            self._pending_input = b""  # The terminal was hung up.
        if not self._pending_input:
            self._stdin_open = False
            if not self._streams.terminal:
                # Not close(): QEMU would drop what it has not read yet.
                self._input.shutdown(socket.SHUT_WR)

    def _send_input(self):
        try:
            sent = self._input.send(self._pending_input, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except (BrokenPipeError, ConnectionResetError):
            sent = len(self._pending_input)  # QEMU has ended.
        self._pending_input = self._pending_input[sent:]


def qemu_arguments(options, kernel, initramfs, image):
    """Returns QEMU's command line, except for the ports.

    With one processor in L1 its guests are sound. TCG's VMRUN leaves the vector that it has injected
    behind as one to be delivered; if the processor is then made to leave its loop for any reason but
    an interrupt, the guest gets the same interrupt once more, also where it has interrupts disabled.
    Only other processors give it such a reason: they ask it to wait while they run an instruction
    alone. docs/decisions.md has the counts.
    """
    return [
        *qemu_command(), "-name", "lab",
        "-M", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi",
        # Without cmpxchg16b: QEMU 7.2 spoils the flags it leaves when there are several processors,
        # and kernel 6.12, as L1 or as L2, then crashes in the slab allocator every few boots.
        "-cpu", "EPYC,+svm,+npt,-cx16",
        "-smp", str(options.cpus), "-m", options.memory,
        "-nodefaults", "-display", "none", "-no-reboot",
        "-device", "intel-iommu,intremap=on",
        # The ELF kernel rather than the bzImage: TCG takes a second to unpack the latter.
        "-kernel", str(kernel.vmlinux), "-initrd", str(initramfs),
        "-append", " ".join(["console=ttyS0 panic=-1 intel_iommu=on", *options.kernel_arguments]),
        # Before any other virtio device, because L1 numbers its ports by that order.
        "-device", "virtio-serial-pci,id=lab",
        # Nothing is lost without flushes: the image does not outlive the run. virtio leaves the
        # NVMe names (nvme0 ...) to the drives given with --qemu-arg.
        "-drive", f"file={image},if=none,id=lab-disk,format=raw,cache=unsafe",
        "-device", "virtio-blk-pci,drive=lab-disk,serial=ringside-lab",
        *(("-netdev", "user,id=lab-net", "-device", "virtio-net-pci,netdev=lab-net,romfile=")
          if options.network else ()),
        *nvme.qemu_arguments(options.namespaces),
        *options.qemu_arguments]


def _die_with_parent():
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
