#!/usr/bin/python3
"""Holds a control socket to its OpenAPI document: control_contract.py RINGSIDE GUEST_ELF DOCUMENT

Every call is made before the machine starts, while it runs and with every field wrong in several
ways; each answer has a status that the document names, and the form that it names for it.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import jsonschema

from unix_connection import UnixConnection, is_served

RINGSIDE, GUEST, DOCUMENT = sys.argv[1:]
LIMIT = 30  # seconds, for anything
PATIENT = "?wait=20s"  # of an operation that a stalled machine may take longer for than a client waits unasked
# What is given where the document cannot know it.
KNOWN = {"disk": "disk0", "device": "disk0", "group": "tenant", "queue": 0, "iothread": "io0",
         "operation": 1, "on": True, "up": True, "network": "net0", "to": "type=null,size=1G",
         "command": ["true"], "from": "/nowhere", "directory": "/dev/null/none"}
# Made at the end, in this order.
LAST = ("power-button", "shut-down")
# Of no sense for a field of whatever type, in JSON.
WRONG_JSON = (None, [], {}, [[1]], {"a": 1}, -1, 1.5, 1e300, 2**64, 2**63, "", "\0", "x" * 5000,
              "-1", "1e9", "\ud7ff")
WRONG_TEXT = ("", "-1", "99999999999999999999", "%00", "x" * 3000, "%2e%2e%2f", "1 s", "nan")


class Call:
    """An operation of the document."""

    def __init__(self, document, path, method, described):
        self.document, self.path, self.method = document, path, method.upper()
        self.name = described["operationId"]
        self.parameters = described.get("parameters", [])
        self.responses = described["responses"]
        self.body = described.get("requestBody", {}).get("content", {}).get(
            "application/json", {}).get("schema")

    def fields(self):
        return self.body.get("properties", {}) if self.body else {}

    def target(self, **given):
        path, query = self.path, []
        for parameter in self.parameters:
            name = parameter["name"]
            value = given.get(name, KNOWN.get(name))
            if parameter["in"] == "path":
                path = path.replace("{" + name + "}", str(value))
            elif name in given:
                query.append(f"{name}={value}")
        return path + ("?" + "&".join(query) if query else "")

    def valid_body(self):
        if not self.body or "$ref" in self.body:
            return None
        return {name: KNOWN[name] for name in self.body.get("required", [])}


class Contract:
    def __init__(self, path):
        self.path = path
        self.connection = UnixConnection(path, LIMIT)
        self.document = self.get("/ringside/v1/openapi.json")
        self.calls = {}
        for path, methods in self.document["paths"].items():
            for method, described in methods.items():
                call = Call(self.document, path, method, described)
                self.calls[call.name] = call
        self.checked = 0

    def get(self, target):
        self.connection.request("GET", target)
        answer = self.connection.getresponse()
        assert answer.status == 200, (target, answer.status, answer.read())
        return json.loads(answer.read())

    def validate(self, schema, value):
        # References lead into the whole document.
        jsonschema.Draft202012Validator(
            schema, resolver=jsonschema.RefResolver.from_schema(self.document)).validate(value)

    def make(self, call, target, body, among=None):
        """Makes a call; its answer is as documented, and its status among those given."""
        text = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        self.connection.request(call.method, target, text)
        answer = self.connection.getresponse()
        content = answer.read()
        what = (call.name, target, text and text[:200], answer.status, content[:300])
        response = call.responses.get(str(answer.status)) or (
            call.responses["default"] if answer.status >= 400 else None)
        assert response is not None, what
        if "$ref" in response:
            response = self.document["components"]["responses"][response["$ref"].split("/")[-1]]
        assert among is None or answer.status in among, what
        assert answer.status != 500, what
        schema = response.get("content", {}).get("application/json", {}).get("schema")
        if answer.status >= 400:
            assert len(json.loads(content)["error"].splitlines()) == 1, what
        if schema:
            self.validate(schema, json.loads(content))
        elif "content" not in response:
            assert content == b"", what
        self.checked += 1
        return answer.status, content

    def make_valid(self, name, among, **given):
        call = self.calls[name]
        body = call.valid_body()
        for field in list(given):
            if field in call.fields():
                body[field] = given.pop(field)
        return self.make(call, call.target(**given), body, among)

    def make_wrong(self, call):
        """Each field wrong in each way, alone: 400, or 404 for what names something. null is as if a field
        were not there, which is wrong for some alone."""
        for field, schema in call.fields().items():
            for value in WRONG_JSON:
                if value is None and field not in call.body.get("required", []):
                    continue
                try:
                    self.validate(schema, value)
                    continue  # it is not wrong for this field
                except jsonschema.ValidationError:
                    pass
                self.make(call, call.target(), {**call.valid_body(), field: value}, {400})
        for parameter in call.parameters:
            for value in WRONG_TEXT:
                among = {400, 404, 414} if parameter["in"] == "path" else {400, 404}
                if value == "" and parameter["in"] == "path":
                    among.add(405)
                target = call.target(**{parameter["name"]: value.replace(" ", "%20")})
                self.make_raw(call, target, among)
        if call.body is not None and "$ref" not in call.body:
            for body in (b"[]", b"1", b"{", b'{"a":1,"a":2}', b"\xff", b'{"nothing":1}',
                         b"[" * 100000):
                self.make(call, call.target(), body, {400})
            for field in call.body.get("required", []):
                lacking = call.valid_body()
                del lacking[field]
                self.make(call, call.target(), lacking, {400})
        self.make(call, call.target() + ("&" if "?" in call.target() else "?") + "nothing=1",
                  call.valid_body(), {400})

    def make_raw(self, call, target, among):
        """The path may be another's then, so that only the status counts."""
        self.connection.request(call.method, target,
                                json.dumps(call.valid_body()) if call.body else None)
        answer = self.connection.getresponse()
        content = answer.read()
        assert answer.status in among, (call.name, target, answer.status, content)
        assert json.loads(content)["error"], content
        self.checked += 1


def wait_for(path, process):
    end = time.monotonic() + LIMIT
    while not is_served(path):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)


def follow_events(path, contract):
    """The lines of the stream, as they come."""
    connection = UnixConnection(path, LIMIT)
    connection.request("GET", "/ringside/v1/events?from=0")
    answer = connection.getresponse()
    schema = contract.calls["events"].responses["200"]["content"]["application/x-ndjson"]["schema"]
    for line in answer:
        event = json.loads(line)
        contract.validate(schema, event)
        yield event["event"]


def check_before_start(contract, network):
    for name, call in contract.calls.items():
        if name in ("stop", "set-config", "start", "events"):
            continue
        at_once = {"version", "document", "machine", "config", "operations"}
        among = {200} if name in at_once | {"operation"} else {404, 409}
        contract.make_valid(name, among)
    contract.make_valid("start", {409})  # it has no kernel
    call = contract.calls["set-config"]
    for body in (b"", b"[]", b"{}", b'{"kernel":1}', b'{"kernel":"a","cpus":0}', b"{" * 70,
                 json.dumps({"kernel": "a", "disks": [{"type": "none"}]}).encode()):
        contract.make(call, call.path + PATIENT, body, {400})
    # It looks what a disk's path is, which may take for ever: so not while all others wait. What is
    # refused is nothing that a later one could be replaced by.
    contract.make(call, call.path + "?wait=0", {"kernel": "a", "cpus": 0}, {202})
    contract.make(call, call.path + PATIENT, {"kernel": "/nowhere", "serial": "none"}, {204})
    status, content = contract.make_valid("start", {404})
    assert b"/nowhere" in content, content
    contract.make(call, call.path + PATIENT, {
        "kernel": GUEST, "memory": "64M", "serial": "none",
        "cmdline": "rw=randrw qd=8 verify=1 size=16M runtime=120s",
        "throttle-groups": [{"id": "tenant", "iops-total": 1000000}],
        "disks": [{"type": "null", "size": "64M", "latency": "50us",
                   "throttle-group": "tenant"}],
        "networks": [{"user": True, "socket": network}]}, {204})


def check_running(contract):
    call = contract.calls["set-config"]
    contract.make(call, call.path + PATIENT, {"kernel": GUEST, "serial": "none"}, {409})
    for name, call in contract.calls.items():
        if "/guest/" in call.path:
            contract.make_valid(name, {409})  # it has no vsock: guest_calls_test.py
        elif name in ("save", "record-working-set"):
            contract.make_valid(name, {409})  # there is no such place, and it goes on from none
        elif name not in LAST + ("stop", "events", "set-config", "start", "remove-iothread",
                               "latencies"):
            device = {"device": "rng"} if name == "device" else {}
            contract.make_valid(name, {200, 204}, **device)
    contract.make_valid("start", {409})
    contract.make(contract.calls["set-group-throttle"], "/ringside/v1/throttle-groups/tenant",
                  {"iops-total": 5, "iops-total-max": 4}, {400})
    contract.make_valid("latencies", {200}, newest=5)
    contract.make_valid("add-iothread", {200}, id="other")
    contract.make_valid("move-queue", {204}, iothread="other")
    contract.make_valid("remove-iothread", {409}, iothread="other")
    contract.make_valid("move-queue", {204})
    contract.make_valid("remove-iothread", {204}, iothread="other")
    status, content = contract.make_valid("pause", {202, 204}, wait="0")
    if status == 202:
        contract.make_valid("operation", {200}, operation=json.loads(content)["id"], wait="10s")
    assert contract.get("/ringside/v1/machine")["state"] == "paused"
    contract.make_valid("resume", {204})
    for call in contract.calls.values():
        contract.make_wrong(call)
    # What was refused has changed nothing.
    assert contract.get("/ringside/v1/machine")["state"] == "running"
    assert len(contract.get("/ringside/v1/iothreads")) == 2


def main():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "vm.sock")
        # What a passt would listen on.
        network = socket.socket(socket.AF_UNIX)
        network.bind(os.path.join(directory, "net.sock"))
        network.listen()
        process = subprocess.Popen([RINGSIDE, "serve", "--api-sock", path])
        try:
            wait_for(path, process)
            contract = Contract(path)
            with open(DOCUMENT, encoding="utf-8") as file:
                assert json.load(file) == contract.document, f"{DOCUMENT} is not current"
            check_before_start(contract, network.getsockname())
            contract.make_valid("start", {204})
            # It follows from its first event on: who asks behind the last call may come after the end.
            events = follow_events(path, contract)
            seen = [next(events)]
            check_running(contract)
            for name in LAST:
                contract.make_valid(name, {204}, **({"limit": "100ms"} if name == "shut-down" else {}))
            seen += events
            assert seen[0] == "started" and seen[-1] == "ended" and "paused" in seen, seen
            assert process.wait(LIMIT) == 0
            assert not os.path.exists(path)
        finally:
            process.kill()
            process.wait()
    print(f"{contract.checked} answers of {len(contract.calls)} calls are as documented")


main()
