"""Debian packages of another suite, for the lab alone: apt with its own sources, lists and cache, so
that the system's stay as they are. Nothing is installed.
"""

import contextlib
import re
import subprocess
from pathlib import Path

from .common import LAB_DIRECTORY, LabError, find_tool, last_line, temporary_directory

# Suites of Debian whose mirror also carries bookworm, the best one first.
USABLE_SUITES = ("bookworm", "trixie", "forky", "stable", "oldstable", "testing", "sid", "unstable")


@contextlib.contextmanager
def private_apt(*suites):
    """Yields a PrivateApt whose lists (some 60 MiB a suite) are there until the context ends. Of two
    packages of a name the one of the suite named first counts."""
    with temporary_directory(LAB_DIRECTORY / "apt") as directory:
        yield PrivateApt(suites, directory)


class PrivateApt:
    def __init__(self, suites, directory):
        self.suites = " ".join(suites)
        self._directory = directory
        sources = directory / "lab.sources"
        sources.write_text(sources_for(self.suites, system_sources()))
        self._options = []
        for option in (f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=-",
                       f"Dir::State::lists={directory / 'lists'}",
                       f"Dir::Cache={directory / 'cache'}", "Dir::State::status=/dev/null",
                       "APT::Architecture=amd64", f"APT::Default-Release={suites[0]}",
                       "Acquire::Languages=none", "APT::Sandbox::User=root"):
            self._options += ["-o", option]
        for part in ("lists/partial", "cache/archives/partial", "downloads"):
            (directory / part).mkdir(parents=True)
        self._apt("apt-get", "update", "-q")

    def dependencies(self, *packages):
        """The names that packages depend on."""
        return re.findall(r"Depends: (\S+)", self._apt("apt-cache", "depends", *packages))

    def libraries(self, *packages):
        """The names of the libraries that packages need, and those need, and so on."""
        found, last = set(), packages
        while last:
            last = {name for name in self.dependencies(*last) if re.match("lib|zlib", name)} - found
            found |= last
        return found

    def names(self, prefix):
        """All package names that begin so."""
        return self._apt("apt-cache", "pkgnames", prefix).split()

    def unpack(self, packages, target):
        """Downloads packages and unpacks them below `target`."""
        downloads = self._directory / "downloads"
        self._apt("apt-get", "download", "-q", *packages, cwd=downloads)
        for package in downloads.glob("*.deb"):
            run_tool([find_tool("dpkg", "dpkg"), "-x", package, target], "unpack a package")

    def _apt(self, program, *arguments, cwd=None):
        command = [find_tool(program, "apt"), *self._options, *arguments]
        return run_tool(command, f"get packages of {self.suites} with {program} {arguments[0]}",
                        cwd=cwd).decode()


def run_tool(command, purpose, input_bytes=b"", cwd=None):
    result = subprocess.run(command, input=input_bytes, capture_output=True, cwd=cwd, check=False)
    if result.returncode != 0:
        message = last_line(result.stderr.decode(errors="replace"))
        raise LabError(f"cannot {purpose}: {message}")
    return result.stdout


def system_sources(directory=Path("/etc/apt")):
    """Returns (URIs, suites, Signed-By) of each enabled binary entry, deb822 or one-line."""
    entries = []
    for path in sorted(directory.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            entries += _deb822_entry(stanza)
    for path in [directory / "sources.list", *sorted(directory.glob("sources.list.d/*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else []:
            entries += _one_line_entry(line)
    return entries


def _deb822_entry(stanza):
    lines = [line for line in stanza.splitlines() if not line.startswith("#")]
    # A value goes on in the lines that start with a blank: Signed-By may hold a whole key.
    fields = re.findall(r"^([\w-]+):((?:.*)(?:\n[ \t].*)*)", "\n".join(lines), re.MULTILINE)
    values = {name.lower(): value.strip(" \t") for name, value in fields}
    if "deb" not in values.get("types", "").split() or values.get("enabled", "yes").strip() == "no":
        return []
    return [(values.get("uris", "").split(), values.get("suites", "").split(),
             values.get("signed-by", ""))]


def _one_line_entry(line):
    match = re.match(r"deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)", line)
    if not match:
        return []
    signed_by = re.search(r"signed-by=(\S+)", match.group(1) or "")
    return [([match.group(2)], [match.group(3)], signed_by.group(1) if signed_by else "")]


def sources_for(wanted, entries):
    """Returns a deb822 source for suites on the mirror that serves this system's Debian."""
    for usable in USABLE_SUITES:
        for uris, suites, signed_by in entries:
            if usable in suites and uris:
                stanza = (f"Types: deb\nURIs: {' '.join(uris)}\nSuites: {wanted}\n"
                          "Components: main\n")
                return stanza + (f"Signed-By: {signed_by}\n" if signed_by else "")
    raise LabError(f"no Debian entry in /etc/apt, so no mirror to get packages of {wanted} from")
