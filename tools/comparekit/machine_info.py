"""What the figures were measured on."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from .common import CHECKOUT
from .contestants import first_line


def describe(ringside):
    return {"cpu": _cpu_model(), "processors": os.cpu_count(), "memory_gib": _memory_gib(),
            "kernel": platform.release(), "distribution": _distribution(), "kvm": _kvm(ringside),
            "hypervisor": _hypervisor(), "commit": _commit()}


def _cpu_model():
    match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match.group(1).strip() if match else "unknown"


def _memory_gib():
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1)


def _distribution():
    text = Path("/etc/os-release").read_text()
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.MULTILINE)
    return match.group(1) if match else "unknown"


def _kvm(ringside):
    """The module that serves /dev/kvm, and what doctor says of guest kernel mode."""
    modules = [name for name in ("kvm_intel", "kvm_amd", "kvm_pvm")
               if Path(f"/sys/module/{name}").exists()]
    doctor = subprocess.run([ringside, "doctor"], capture_output=True, text=True, check=False)
    interprets = ["KVM interprets guest kernel mode"] if "interpreted" in doctor.stdout else []
    return ", ".join([*modules, *interprets]) or "KVM"


def _hypervisor():
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return "virtual machine" if flags and " hypervisor" in flags.group(1) else "bare metal"


def _commit():
    if not (CHECKOUT / ".git").exists() or not shutil.which("git"):
        return ""
    git = ["git", "-C", str(CHECKOUT)]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode != 0
    return first_line([*git, "rev-parse", "--short", "HEAD"]) + (" with changes" if changed else "")
