"""How Ringside's I/O threads wait and signal: the values of --iothread, with their names in the tables."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Default:
    """As a user gets it, without --iothread."""

    name: str = "default"
    option: str = None


@dataclass(frozen=True)
class Polling:
    """How the thread waits."""

    policy: str            # As in --iothread poll=...
    limit_us: int = None   # None: the policy has no limit.
    price: str = None      # Of cost, likewise.

    @property
    def name(self):
        limit = "" if self.limit_us is None else f"{self.limit_us}us"
        return {"never": "no poll", "always": "poll always", "fixed": f"poll fixed {limit}",
                "grow-shrink": f"poll {limit}", "weighted": f"poll weighted {limit}",
                "cost": "poll cost" + ("" if self.price is None else f", price {self.price}"),
                }[self.policy]

    @property
    def option(self):
        return (f"poll={self.policy}" + ("" if self.limit_us is None else f",max={self.limit_us}us")
                + ("" if self.price is None else f",price={self.price}"))


@dataclass(frozen=True)
class Signalling:
    """When it raises interrupts; it polls by default then."""

    policy: str  # As in --iothread signal=...

    @property
    def name(self):
        return f"signal {self.policy}"

    @property
    def option(self):
        return f"signal={self.policy}"


SIGNALLING = ("early", "batched", "cost")
# What QEMU's IOThread polls for by default, and Ringside's beside it.
EQUAL_LIMIT_US = 32
QEMU_POLL_MAX_NS = 32768
# By what --ringside-poll calls them.
POLLING = {"never": Polling("never"), "grow-shrink": Polling("grow-shrink", EQUAL_LIMIT_US),
           "cost": Polling("cost"), "always": Polling("always")}


def option_words(way):
    """The words on Ringside's command line."""
    return [] if way.option is None else ["--iothread", way.option]
