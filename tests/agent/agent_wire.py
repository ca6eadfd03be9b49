"""The agent's protocol, spoken by hand: what a client or an agent of Ringside's would not send, too."""

import contextlib
import socket
import struct
import threading

(HELLO, ERROR, DONE) = range(1, 4)
(EXEC, STDIN, STDIN_END, SIGNAL, RESIZE, STARTED, STDOUT, STDERR, STDIN_TAKEN, EXIT) = range(16, 26)
(PUT, GET, ENTRY, DATA, FILE_END, LEAVE, TREE_END) = range(32, 39)
(CLOCK, ENTROPY, SHUT_DOWN, PING) = range(48, 52)
MOST_DATA = 32 << 10
HELLO_PAYLOAD = struct.pack("<IHHI", 0x47415352, 1, 0, 0)


def frame(kind, payload=b""):
    return struct.pack("<IHH", len(payload), kind, 0) + payload


def command(*words, terminal=False):
    payload = struct.pack("<IIIHHII", int(terminal), 0, 0, 24, 80, len(words), 0)
    return frame(EXEC, payload + b"".join(word.encode() + b"\0" for word in words) + b"\0")


def entry(name, kind=1, mode=0o644, target=b""):
    return frame(ENTRY, struct.pack("<IIQI", kind, mode, 0, len(name)) + name + target)


class Wire:
    """A connection; with `greeted` the hellos are behind it."""

    def __init__(self, path, greeted=True, limit=30):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(limit)
        self.socket.connect(path)
        self.buffer = b""
        if greeted:
            self.send(b"CONNECT 5005\n")
            answer = b""
            while not answer.endswith(b"\n"):
                answer += self.read(1) or b"no line\n"
            assert answer.startswith(b"OK "), answer
            kind, payload = self.receive()
            assert kind == HELLO and payload[:4] == HELLO_PAYLOAD[:4], (kind, payload)
            self.send(frame(HELLO, HELLO_PAYLOAD))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def read(self, size):
        """None at the end."""
        while len(self.buffer) < size:
            try:
                got = self.socket.recv(1 << 16)
            except ConnectionResetError:
                got = b""
            if not got:
                return None
            self.buffer += got
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def receive(self):
        """(type, payload), or (None, b"") at the end."""
        head = self.read(8)
        if head is None:
            return None, b""
        size, kind, _ = struct.unpack("<IHH", head)
        return kind, self.read(size)

    def until(self, wanted):
        """What was said up to a message of the type: {type: bytes}, that included."""
        said = {}
        while True:
            kind, payload = self.receive()
            if kind is None:
                return said
            said[kind] = said.get(kind, b"") + payload
            if kind == wanted:
                return said


class FalseAgent:
    """Stands where a machine's vsock does, and says what it likes: `act` with a connection whose
    hellos are behind it, or with greets=False with one that has said nothing yet."""

    def __init__(self, path, act, greets=True):
        self.act, self.greets = act, greets
        self.is_over = threading.Event()
        self.connection = None
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def close(self):
        self.is_over.set()
        for each in (self.socket, self.connection):
            with contextlib.suppress(OSError, AttributeError):
                each.shutdown(socket.SHUT_RDWR)  # which ends what waits for it
        self.thread.join()
        self.socket.close()

    def serve(self):
        while not self.is_over.is_set():
            with contextlib.suppress(OSError), self.socket.accept()[0] as connection:
                self.connection = connection
                if self.greets:
                    self.greet(connection)
                self.act(connection)

    def greet(self, connection):
        connection.sendall(b"OK 1024\n" + frame(HELLO, HELLO_PAYLOAD))

    def say(self, connection, pieces, pause=0.0):
        """Until the host has heard enough."""
        for piece in pieces:
            connection.sendall(piece)
            if self.is_over.wait(pause):
                return
