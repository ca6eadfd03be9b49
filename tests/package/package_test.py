#!/usr/bin/python3
"""What is installed of Ringside, as somebody else's project finds it.

package_test.py BUILD GUEST: the build directory, and the bare-metal guest."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
EMBEDDING = HERE.parents[1] / "docs" / "embedding.md"
# What the public headers may not bring with them.
OTHERS = re.compile(r"liburing|linux/kvm|linux/io_uring|linux/vfio|sys/epoll|nlohmann")


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(dir=".")
        cls.addClassCleanup(directory.cleanup)
        cls.place = Path(directory.name).resolve()
        cls.prefix = cls.place / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.library = next(cls.prefix.rglob("libringside.so")).parent

    def run_guest(self, program):
        if not os.access("/dev/kvm", os.W_OK):
            self.skipTest("there is no /dev/kvm that can be used")
        done = subprocess.run([program, GUEST, "rw=randread qd=4 runtime=300ms"],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r'"ios":[1-9].*"errors":0,')
        self.assertRegex(done.stderr, r"^[1-9]\d* requests\n")

    def pkg_config(self, *options):
        return run("pkg-config", *options, "ringside",
                   env={**os.environ, "PKG_CONFIG_PATH": self.library / "pkgconfig"}).split()

    def test_a_project_with_a_device_of_its_own_finds_it_by_cmake(self):
        build = self.place / "zeroes"
        run("cmake", "-G", "Ninja", "-S", HERE, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        self.run_guest(build / "zeroes")
        self.run_guest(build / "zeroes_shared")

    def test_a_program_finds_it_by_pkg_config(self):
        compiled = self.place / "surface.o"
        run("c++", *self.pkg_config("--cflags"), "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c",
            HERE / "surface.cc", "-o", compiled)
        shared, static = self.place / "surface", self.place / "surface_static"
        run("c++", compiled, "-o", shared, *self.pkg_config("--libs"))
        self.assertIn("libringside.so.0.1", run("readelf", "-d", shared))
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.library)}
        self.assertIn("/nowhere/disk.img", run(shared, GUEST, env=environment))
        run("c++", "-static", compiled, "-o", static, *self.pkg_config("--static", "--libs"))
        self.assertIn("/nowhere/disk.img", run(static, GUEST))

    def test_each_header_stands_alone(self):
        headers = sorted((self.prefix / "include" / "ringside").iterdir())
        self.assertEqual([each.name for each in headers],
                         ["config.h", "device.h", "event.h", "explanation.h", "export.h",
                          "guest_agent.h", "io_pool.h", "log.h", "machine.h", "machine_end.h",
                          "machine_template.h", "snapshot_merge.h", "statistics.h", "vsock.h"])

        def included(header):
            source = self.place / f"{header.stem}.cc"
            source.write_text(f'#include "ringside/{header.name}"\n')
            found = self.place / f"{header.stem}.d"
            run("c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                "-MD", "-MF", found, "-I", self.prefix / "include", source)
            return found.read_text().replace("\\\n", " ").split()[1:]

        with ThreadPoolExecutor(max_workers=2) as pool:
            for header, names in zip(headers, pool.map(included, headers)):
                self.assertGreater(len(names), 1)
                others = [name for name in names if OTHERS.search(name)]
                self.assertEqual(others, [], header.name)

    def test_the_shared_library_shows_these_names_alone(self):
        printed = run("nm", "--dynamic", "--defined-only", "--demangle", "--format=just-symbols",
                      self.library / "libringside.so")
        # The version script's own name is none.
        names = sorted(set(printed.splitlines()))
        expected = (HERE / "exported_names.txt").read_text().splitlines()
        self.assertEqual(names, expected)

    def test_the_command_is_one_file(self):
        command = self.prefix / "bin" / "ringside"
        self.assertIn("ringside", run(command, "--version"))
        self.assertNotIn("NEEDED", run("readelf", "-d", command))


class Documented(unittest.TestCase):
    def test_what_embedding_shows_is_what_is_built(self):
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", EMBEDDING.read_text(), re.DOTALL | re.MULTILINE)
        for language, name in (("cpp", "main.cc"), ("cmake", "CMakeLists.txt")):
            shown = [text for block, text in blocks if block == language]
            self.assertEqual(shown, [(HERE / name).read_text()], name)


if __name__ == "__main__":
    BUILD, GUEST = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
