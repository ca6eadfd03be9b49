"""HTTP over the Unix socket at a path, and whether it is served."""

import http.client
import socket


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, limit):
        """`limit`: seconds, for anything."""
        super().__init__("localhost", timeout=limit)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def is_served(path):
    """A path is there before anybody listens."""
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(path) == 0
