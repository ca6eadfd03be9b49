"""Which images a power cut can leave at each point of a record.

A point is a number of entries: those before it have happened. What a completed flush covers is on
the disk (VIRTIO 1.2, section 5.2.6.2: the writes that were completed before it was submitted), and so
is a completed write that was to be durable. Any other that was submitted may be there or not."""

import random
from dataclasses import dataclass, field

from powercutkit.record import FLUSH, WRITE, Problem


@dataclass(frozen=True)
class Subset:
    """Of the unflushed writes: those that have reached the disk."""

    name: str                   # "all", "none", "only-17", "random-3": what --only takes.
    chosen: tuple               # In the order of their submission.
    torn: dict = field(default_factory=dict, compare=False)  # number: the blocks that are there

    def key(self):
        return tuple((request.number, self.torn.get(request.number)) for request in self.chosen)


class Replay:
    """Goes through a record, entry by entry, with an image that has what is certain."""

    def __init__(self, record, image):
        self.record = record
        self.image = image      # Open for reading and writing, as the disk was at the beginning.
        self.point = 0
        self.flushes = 0        # That have succeeded.
        self._pending = []      # Submitted, and not in the image; in the order of their submission.
        self._completed = set()
        self._failed = set()
        self._settled = set()   # Those in _pending that are certain.
        self._covered = {}      # By flush under way: what it covers.

    def go_to(self, point):
        """Goes on to a point that lies ahead."""
        for entry in self.record.entries[self.point:point]:
            if entry.request.op == FLUSH:
                self._take_flush(entry)
            elif entry.is_submission:
                self._pending.append(entry.request)
            else:
                self._take_completion(entry)
        self.point = point

    def _take_flush(self, entry):
        if entry.is_submission:
            self._covered[entry.request] = self._completed.intersection(self._pending)
            return
        covered = self._covered.pop(entry.request)
        if entry.result == 0:
            self.flushes += 1
            self._settle(covered)

    def _take_completion(self, entry):
        self._completed.add(entry.request)
        if entry.result != 0:
            # In the image or not, or a part of it: nobody knows. It may be there until a flush is
            # past; after that it is taken as never written.
            self._failed.add(entry.request)
        elif entry.request.durable:
            self._settle({entry.request})

    def _settle(self, requests):
        self._settled |= requests
        waiting = []
        for request in self._pending:
            is_settled = request in self._settled
            if is_settled and request in self._failed:
                continue
            # An older write that may still come must not come over it.
            if not is_settled or any(request.overlaps(older) for older in waiting):
                waiting.append(request)
            else:
                self._put(request)
        self._pending = waiting
        self._settled.intersection_update(waiting)

    def unflushed(self):
        return [request for request in self._pending if request not in self._settled]

    def subsets(self, seed, randoms, most_singles=None, torn=False):
        """Returns the Subsets to look at here, no two of them the same."""
        loose = self.unflushed()
        singles = loose
        if most_singles is not None and len(loose) > most_singles:
            singles = self._random(seed, "singles").sample(loose, most_singles)
        found = [self._subset("none", []), self._subset("all", loose)]
        found += [self._subset(f"only-{request.number}", [request]) for request in singles]
        found += [self.random_subset(seed, number, torn) for number in range(randoms)]
        return list({subset.key(): subset for subset in reversed(found)}.values())[::-1]

    def named_subset(self, name, seed, torn=False):
        loose = self.unflushed()
        kind, _, number = name.partition("-")
        if kind == "random" and number.isdigit():
            return self.random_subset(seed, int(number), torn)
        chosen = {"none": [], "all": loose}.get(name)
        if kind == "only" and number.isdigit():
            chosen = [request for request in loose if request.number == int(number)] or None
        if chosen is None:
            raise Problem(f"point {self.point} has no subset '{name}': give all, none, random-N, or "
                          f"only-N with N of {[request.number for request in loose]}")
        return self._subset(name, chosen)

    def random_subset(self, seed, number, torn):
        draw = self._random(seed, number)
        # With any share of them there, so that few and many are as likely as half.
        share = draw.random()
        chosen = [request for request in self.unflushed() if draw.random() < share]
        tears = {}
        for request in chosen if torn else []:
            blocks = request.length // self.record.block
            if request.op == WRITE and blocks > 1 and draw.random() < 0.5:
                tears[request.number] = tuple(block for block in range(blocks)
                                              if draw.random() < 0.5)
        return self._subset(f"random-{number}", chosen, tears)

    def _random(self, seed, what):
        return random.Random(f"{seed}/{self.point}/{what}")

    def _subset(self, name, chosen, torn=None):
        wanted = self._settled.union(chosen)
        return Subset(name, tuple(r for r in self._pending if r in wanted), torn or {})

    def _put(self, request, undoable=False):
        if request.op == WRITE:
            self.image.write(request.offset, self.record.data(request), undoable)
        else:   # Discarded bytes are taken as zeroes, as a file has them.
            self.image.zero(request.offset, request.length, undoable)

    def apply(self, subset):
        """Puts the subset into the image; its undo() takes it out again."""
        for request in subset.chosen:
            blocks = subset.torn.get(request.number)
            if blocks is None:
                self._put(request, undoable=True)
                continue
            for block in blocks:
                begin = block * self.record.block
                data = self.record.data(request, begin, begin + self.record.block)
                self.image.write(request.offset + begin, data, undoable=True)


def changing_points(record):
    """Returns the points at which other images are possible than at the one before."""
    points = [0]
    for number, entry in enumerate(record.entries, 1):
        if entry.request.op == FLUSH:
            changes = entry.is_flushed
        else:
            changes = entry.is_submission or entry.request.durable or entry.result != 0
        if changes:
            points.append(number)
    return points


def flush_points(record):
    """Returns the points right after each flush that has succeeded."""
    return [number for number, entry in enumerate(record.entries, 1) if entry.is_flushed]
