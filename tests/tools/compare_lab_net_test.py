#!/usr/bin/python3
"""What the comparison of networks in the lab makes of its results, and which ones it refuses."""

import io
import json
import tarfile
import unittest
from unittest import mock

from comparekit import lab_net, lab_net_table, options as command_line, summary
from comparekit.common import BadInput, MeasureError
from comparekit.vmms import Contestant

MIB = 1 << 20


def machines():
    found = [lab_net.Machine(Contestant(name, name, "1"), f"/{name} run") for name in ("Ringside", "QEMU")]
    for machine, family in zip(found, ("Ringside", "QEMU")):
        machine.contestant.family = family
    return found


def tcp(mib):
    return {"end": {"sum_received": {"bytes": mib * MIB, "seconds": 2.0}}}


def udp(packets, lost, reordered):
    return {"end": {"sum": {"bytes": 0, "seconds": 2.0, "packets": packets, "lost_packets": lost,
                            "lost_percent": 100 * lost / packets},
                    "streams": [{"udp": {"out_of_order": reordered}}]}}


class CompareLabNetTest(unittest.TestCase):
    def setUp(self):
        self.options = command_line.parse_lab_net(
            ["--rounds", "1", "--pairs", "2", "--connections", "1,64", "--loads", "out,udp-in"])
        self.files = {}
        for machine in machines():
            place = f"./1/2/{machine.name}"
            self.files |= {f"{place}/facts": "kernel=6.1\npairs=2\n",
                           f"{place}/out-1.json": json.dumps(tcp(100)),
                           f"{place}/out-64.json": json.dumps(tcp(80)),
                           # The guest receives: what counts is what it says.
                           f"{place}/udp-in-1.json": json.dumps(
                               {**udp(9999, 0, 0), "server_output_json": udp(1000, 250, 3)})}
            for job in ("out-1", "out-64", "udp-in-1"):
                self.files[f"{place}/{job}.begin"] = "1000 500 10 7"
                self.files[f"{place}/{job}.end"] = "200001000 50000500 1010 107"

    def read(self, others=()):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name, text in self.files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        stream.seek(0)
        with tarfile.open(fileobj=stream) as archive, \
                mock.patch("comparekit.machine_info.describe", return_value={
                    "cpu": "", "processors": 2, "hypervisor": "", "memory_gib": 1, "distribution": "",
                    "kernel": "", "kvm": "", "commit": ""}):
            return lab_net.read(archive, self.options, machines(), dict(others))

    def points(self, results, target):
        return {row.name: row.points for row in summary.rows(results, target)}

    def test_figures_are_of_a_mib(self):
        points = self.points(self.read(), "out, 2 pairs")["Ringside"]
        self.assertEqual(list(points), [1, 64])
        self.assertEqual({name: points[1][name].median for name in (
            "iops", "cpu_ns_per_io", "host_cpu_ns_per_io", "exits_per_io", "interrupts_per_io")},
            {"iops": 50, "cpu_ns_per_io": 2e6, "host_cpu_ns_per_io": 1.5e6, "exits_per_io": 10,
             "interrupts_per_io": 1})

    def test_who_receives_datagrams_counts_them(self):
        point = self.points(self.read(), "udp-in, 2 pairs")["QEMU"][1]
        self.assertEqual([point[name].median for name in ("iops", "lost_share", "reordered")],
                         [750 * 1400 / MIB / 2, 0.25, 3])

    def test_the_table_has_all(self):
        text = lab_net_table.markdown(self.read(others={(1, "2/qemu"): 0.5}))
        for expected in ("**Ringside**", "QEMU!", "64 connections", "out, 2 pairs: TCP from the guest",
                         "reordered", "50.0 ±0%"):
            self.assertIn(expected, text)

    def test_what_cannot_be_is_a_failure(self):
        for name, text, reason in (("out-1.json", json.dumps(tcp(0)), "nothing was carried"),
                                   ("out-1.end", "200001000 50000500 5 107", "cannot be"),
                                   ("out-1.json", "{}", "no figures: KeyError"),
                                   ("out-1.end", "none", "no figures: ValueError"),
                                   ("out-1.json", "[]", "no figures: TypeError"),
                                   ("udp-in-1.json", json.dumps({**udp(9, 0, 0), "server_output_json": {
                                       "end": {"sum": {}, "streams": []}}}), "no figures:"),
                                   # What the server has seen, not what the client has sent.
                                   ("udp-in-1.json", json.dumps(udp(10, 0, 0)), "server_output_json"),
                                   ("facts", "pairs=1", "another number of queue pairs"),
                                   ("failed", "it hung", "it hung")):
            before = dict(self.files)
            self.files[f"./1/2/qemu/{name}"] = text
            results = self.read()
            self.files = before
            self.assertEqual([sample["contestant"] for sample in results["samples"]], ["Ringside"] * 2)
            self.assertIn(reason, results["failures"][0])

    def test_nothing_left_is_an_error(self):
        for machine in machines():
            self.files[f"./1/2/{machine.name}/failed"] = "it hung"
        with self.assertRaisesRegex(MeasureError, "it hung"):
            self.read()

    def test_bad_options(self):
        for words in (["--loads", "sideways"], ["--pairs", "0"], ["--connections", "x"]):
            with self.assertRaises(BadInput):
                command_line.parse_lab_net(words)


if __name__ == "__main__":
    unittest.main()
