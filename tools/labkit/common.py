"""What every part of the lab needs: where things are, errors, tools, locks."""

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
LAB_DIRECTORY = CHECKOUT / "build" / "lab"
SCRIPTS = Path(__file__).resolve().parent


class LabError(Exception):
    """A failure of the lab itself: one line with the thing, the value and the remedy."""


def find_tool(name, debian_package):
    """Returns the path of a program; mke2fs and others live where a user's PATH may not look."""
    path = shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if path is None:
        raise LabError(f"program '{name}' not found: install the Debian package {debian_package}")
    return path


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def progress(text):
    """Shows what is being waited for, on a terminal only; an empty text takes it away again."""
    if sys.stderr.isatty() and (text or progress.shown):
        sys.stderr.write("\r\033[K" + (f"lab: {text}" if text else ""))
        sys.stderr.flush()
    progress.shown = bool(text)


progress.shown = False


@contextlib.contextmanager
def locked(path):
    """Holds an exclusive lock, so that two labs do not download or build the same thing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def replacing(path):
    """Yields a binary file that takes the place of `path` only once written completely."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise LabError(f"cannot write '{path}': {error.strerror}") from error
    try:
        os.close(descriptor)
        with open(temporary, "wb") as output:  # Its name is for programs that write it.
            yield output
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def temporary_directory(parent):
    """Yields a directory that is removed on every way out.

    A lab ended with SIGKILL cannot remove its own; the lock each living lab holds on its
    directory lets the next one tell such a leftover and remove it.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with locked(parent.with_name(parent.name + ".lock")):
        for leftover in parent.iterdir():
            _remove_if_abandoned(leftover)
        directory = Path(tempfile.mkdtemp(dir=parent))
        descriptor = os.open(directory, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(descriptor)


def _remove_if_abandoned(directory):
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        return  # Its lab has just removed it.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    except BlockingIOError:
        pass  # A living lab's.
    finally:
        os.close(descriptor)
