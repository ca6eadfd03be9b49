#!/usr/bin/python3
"""docs/house.svg is what tools/house draws of this tree; and what the tool makes of others."""

import contextlib
import importlib.machinery
import importlib.util
import io
import tempfile
import unittest
from pathlib import Path

_PROGRAM = Path(__file__).resolve().parents[2] / "tools" / "house"


def load():
    loader = importlib.machinery.SourceFileLoader("house", str(_PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("house", loader))
    loader.exec_module(module)
    return module


house = load()


def run(*arguments, root):
    """Returns the exit status and what was said."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = house.main(list(arguments), root)
    return status, said.getvalue()


class House(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        self.put("CMakeLists.txt", "ringside_library(low DEPENDS absl::status)\n"
                                   "ringside_library(side USES low OFF_PATH)\n"
                                   "ringside_library(mid USES low\n                 DEPENDS x)\n"
                                   "ringside_library(up USES low mid)\n")
        self.put("command/CMakeLists.txt", "ringside_library(command USES low mid up)\n")
        self.put("docs/code.md", "".join(f"| `{name}/` | what {name} is for |\n" for name in
                                         ("low", "mid", "side", "up", "command", "tools")))

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def change(self, name, old, new):
        text = (self.root / name).read_text()
        self.assertIn(old, text)
        self.put(name, text.replace(old, new))

    def test_the_committed_picture_is_current(self):
        self.assertEqual(run("--check", root=house.ROOT), (0, ""))

    def test_a_folder_stands_right_of_what_it_uses(self):
        places = house.place(house.read_uses(self.root))
        self.assertEqual({name: column for name, (column, _) in places.items()},
                         {"low": 0, "side": 1, "mid": 1, "up": 2, "command": 3})

    def test_what_follows_from_other_uses_is_not_drawn(self):
        uses = house.read_uses(self.root)
        self.assertEqual({name: house.direct(name, uses) for name in uses},
                         {"low": [], "side": ["low"], "mid": ["low"], "up": ["mid"],
                          "command": ["up"]})

    def test_a_change_of_folders_or_words_makes_the_picture_stale(self):
        for name, old, new in (("CMakeLists.txt", "up USES low mid", "up USES low side"),
                               ("docs/code.md", "what mid is for", "what it is for")):
            self.assertEqual(run(root=self.root), (0, ""))
            self.assertEqual(run("--check", root=self.root), (0, ""))
            self.change(name, old, new)
            status, said = run("--check", root=self.root)
            self.assertEqual((status, "run tools/house" in said), (1, True))

    def test_without_a_picture_the_check_fails(self):
        self.assertEqual(run("--check", root=self.root)[0], 1)

    def test_what_it_cannot_draw_is_said(self):
        for name, old, new, words in (
                ("docs/code.md", "| `side/`", "| `other/`", "no row '| `side/`"),
                ("docs/code.md", "what up is for", "what up is for, " * 12, "what up/ holds")):
            self.setUp()
            self.change(name, old, new)
            status, said = run(root=self.root)
            self.assertEqual((status, words in said), (1, True), said)

    def test_an_arrow_never_crosses_a_folder(self):
        places = {"low": (0, 0), "mid": (1, 0), "up": (2, 0)}
        with self.assertRaisesRegex(house.Problem, "from up/ to low/ would cross mid/"):
            house.draw_use("up", "low", places)

    def test_unknown_options(self):
        self.assertEqual(run("--chek", root=self.root)[0], 2)


if __name__ == "__main__":
    unittest.main()
