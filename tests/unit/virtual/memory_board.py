"""A virtual board's files in memory, at a time that the test sets."""

import pytest

from boardbench.virtual.boards import make_board, make_tree
from boardbench.virtual.tree import File, Link, Tree


class Files:
    """Reads and writes the files of one board by path, following links."""

    def __init__(self, kind, name="king"):
        self.now_s = 1000.0
        self.drops = []
        self.board = make_board(name, kind, f"test/{name}", 1.0)
        self.board.clock = lambda: self.now_s
        self.board._at = self.now_s
        self.tree: Tree = make_tree(self.board, self.drops.append)

    def file(self, path) -> File:
        parts, at = path.split("/"), []
        for part in parts:
            at.append(part)
            entry = self.tree.find("/".join(at))
            if isinstance(entry, Link):
                target = [*at[:-1], *entry.target.split("/")]
                at = []
                for word in target:
                    at = at[:-1] if word == ".." else [*at, word]
        entry = self.tree.find("/".join(at))
        assert isinstance(entry, File), path
        return entry

    def read(self, path):
        self.board.advance()
        return self.file(path).read().rstrip("\n")

    def write(self, path, text):
        self.board.advance()
        self.file(path).write(text)


def refused(files, path, text):
    with pytest.raises(OSError) as caught:
        files.write(path, text)
    return caught.value.errno
