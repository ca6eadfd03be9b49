"""A check for tools/powercut of what fsync_guest.sh has written: ext4_check.py IMAGE, which it may
change.

The journal has to lead to a file system without a fault. In it, each file that was marked up to the
last mark that is there has to be as its newest mark says, or as a later one of the whole run says: it
may have been changed since. AFTER in the environment is the image at the end, which has all marks."""

import hashlib
import os
import subprocess
import sys
import tempfile

MARKS_AT = 12 << 20


def run(*words):
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)


def read_marks(path):
    """Returns {number: (name, checksum)}."""
    with open(path, "rb") as image:
        image.seek(MARKS_AT)
        sectors = image.read()
    marks = {}
    for at in range(0, len(sectors), 512):
        words = sectors[at:at + 512].decode(errors="replace").split()
        if words[:1] == ["mark"]:
            marks[int(words[1])] = (words[2], words[3])
    return marks


def check_files(image, there, every):
    """Returns what is wrong, or None."""
    # They are written one after the other: whatever was marked before the last was flushed before it.
    last = max(there, default=-1)
    newest = {name: number for number, (name, _) in sorted(every.items()) if number <= last}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        commands = os.path.join(directory, "commands")
        with open(commands, "w", encoding="ascii") as file:
            for place, name in enumerate(newest):
                file.write(f"dump /{name} {directory}/{place}\n")
        run("/usr/sbin/debugfs", "-f", commands, image)
        for place, (name, number) in enumerate(newest.items()):
            try:
                with open(f"{directory}/{place}", "rb") as file:
                    found = hashlib.sha256(file.read()).hexdigest()
            except OSError:
                return f"mark {number} is there, and {name} is not"
            allowed = {checksum for later, (of, checksum) in every.items()
                       if of == name and later >= number}
            if found not in allowed and not is_being_changed(name, number, every):
                return f"mark {number} is there, and {name} has other content"
    return None


def is_being_changed(name, number, every):
    """Whether a later mark shows that it was changed in place after this one: then its content may be
    anything between, but for what a rename replaces as a whole."""
    index = int(name.rpartition("f")[2])
    return index % 4 == 1 and any(of == name and later > number
                                  for later, (of, _) in every.items())


def main(image):
    journal = run("/usr/sbin/e2fsck", "-y", "-E", "journal_only", image)
    checked = run("/usr/sbin/e2fsck", "-fn", image)
    if checked.returncode != 0:
        print(f"e2fsck finds faults after the journal:\n{journal.stdout}{checked.stdout}")
        return 1
    wrong = check_files(image, read_marks(image), read_marks(os.environ["AFTER"]))
    if wrong is not None:
        print(wrong)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
