#!/usr/bin/python3
"""No two types of the product have one name: the linker would take one's functions for the
other's, and say nothing."""

import collections
import re
import subprocess
import unittest
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
NOT_PRODUCT = ("benchmarks/", "tests/", "tools/")
TYPE = re.compile(r"(?:class|struct) (\w+)(?: final)?(?: : [^;]*)? ?\{")


def types_of(text):
    """Those at the outermost level of a namespace that has a name."""
    is_anonymous = False
    for line in text.splitlines():
        if line == "namespace {":
            is_anonymous = True
        elif line == "}  // namespace":
            is_anonymous = False
        elif not is_anonymous and (match := TYPE.match(line)):
            yield match[1]


def twice(checkout):
    """{name: files} of those that are defined in several."""
    names = subprocess.run(["git", "ls-files", "*.cc", "*.h"], cwd=checkout, capture_output=True,
                           text=True, check=True).stdout.split()
    files = collections.defaultdict(list)
    for name in names:
        if not name.startswith(NOT_PRODUCT) and (checkout / name).exists():
            for each in types_of((checkout / name).read_text()):
                files[each].append(name)
    return {name: where for name, where in files.items() if len(where) > 1}


class Names(unittest.TestCase):
    def test_no_type_has_the_name_of_another(self):
        self.assertEqual(twice(CHECKOUT), {})

    def test_what_counts(self):
        text = ("struct A {\nnamespace {\nclass B {\n}  // namespace\n"
                "class C final : public D {\nclass E;\n")
        self.assertEqual(list(types_of(text)), ["A", "C"])


if __name__ == "__main__":
    unittest.main()
