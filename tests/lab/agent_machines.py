"""Of the scripts inside the lab that time guests whose init is the agent (build/lab/test-agent.cpio), under Ringside
and under Firecracker."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../agent"))
import agent_wire as wire  # noqa: E402

COMMAND_LINE = "console=ttyS0 quiet panic=-1 reboot=k rdinit=/sbin/agent-init"
LIMIT = 120  # seconds, until a guest answers


def ringside(program, kernel, initrd, place, *options, memory="512M"):
    """The command of a machine whose vsock is `place`/vsock."""
    return [program, "run", "--kernel", kernel, "--initrd", initrd, "--memory", memory, "--cmdline",
            COMMAND_LINE, "--serial", f"file={place}/console", "--vsock", f"cid=3,path={place}/vsock", *options]


def firecracker(program, kernel, initrd, place, *options, memory_mib=512, drives=()):
    """The same of Firecracker, to run in `place`."""
    config = {"boot-source": {"kernel_image_path": kernel, "initrd_path": initrd, "boot_args": COMMAND_LINE},
              "machine-config": {"vcpu_count": 1, "mem_size_mib": memory_mib}, "drives": list(drives),
              "vsock": {"guest_cid": 3, "uds_path": "vsock"}}
    with open(f"{place}/config", "w", encoding="utf-8") as file:
        json.dump(config, file)
    return [program, "--config-file", f"{place}/config", "--enable-pci", *options]


def run(path, *words):
    """The output of a command in the guest."""
    with wire.Wire(path, limit=10) as client:
        client.send(wire.command(*words) + wire.frame(wire.STDIN_END))
        said = client.until(wire.EXIT)
        assert wire.EXIT in said, said
        return said.get(wire.STDOUT, b"").decode()


def run_once_it_answers(path, *words, process=None, step=0.2):
    """As soon as there is an agent. `process`: its machine's, while which lives it may come."""
    end = time.monotonic() + LIMIT
    while True:
        try:
            return run(path, *words)
        except (OSError, AssertionError):
            assert time.monotonic() < end and (process is None or process.poll() is None), "no agent"
            time.sleep(step)
