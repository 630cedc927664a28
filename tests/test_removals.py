"""Each place that removes, cuts or replaces a file is known, and a row of the page says its proof.

Whoever adds such a place adds it here, and the proof that precedes it to the table of the page
`docs/explanation/storage.md`, "What is removed, and the proof before it".
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "explanation" / "storage.md"
HEADING: Final = "## What is removed, and the proof before it"
ALWAYS: Final = frozenset({"unlink", "rmtree", "rmdir", "ftruncate", "rename", "removedirs"})
OF_MODULES: Final = frozenset({"os.remove", "os.truncate", "os.replace", "shutil.move"})
OF_STORES: Final = frozenset({"obstore.delete", "transaction.delete", "cursor.delete"})
"""Calls that remove objects and values. A store of another name would need another line here."""

SHELL: Final = "tablets/dodona_tablets/shell"
KNOWN: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    f"{SHELL}/log.py": (
        2,
        ("files of the log before", "the last file of the log", "a new file of the log"),
    ),
    f"{SHELL}/log_segments.py": (1, ("the room behind the last group",)),
    f"{SHELL}/chunk_files.py": (3, ("files while they are written", "chunks that were compacted")),
    f"{SHELL}/chunk_cache.py": (
        4,
        ("files of a node whose chunks are in an object store", "`unfinished`"),
    ),
    f"{SHELL}/objects.py": (2, ("objects in a folder, or", "`unfinished`")),
    f"{SHELL}/s3_objects.py": (1, ("or in an object store",)),
    "oracle/dodona_oracle/shell/store.py": (1, ("a value of the master's store",)),
    "client/dodona_replication/shell/replica_writing.py": (1, ("entries of a log replica",)),
    "client/dodona_server/disk_space.py": (2, ("`ballast`", "`ballast.probe`", "`unfinished`")),
    "client/dodona_server/recovery_book.py": (1, ("the book of recoveries",)),
    "client/dodona_wire/net/cluster_key.py": (2, ("the cluster's key",)),
    "client/dodona_wire/net/folder.py": (3, ("a folder's lock file", "`unfinished`")),
    "client/dodona_replication/shell/replica_journal.py": (1, ("a log replica's journal",)),
    "client/dodona_gateway/shell/first_token.py": (2, ("the first token",)),
    "client/dodona_gateway/shell/audit.py": (1, ("the oldest audit file",)),
    "client/dodona_local/files/replacing.py": (2, ("a file that `export` replaces",)),
    "client/dodona_local/cli/running.py": (1, ("the folder of a command that failed",)),
    "client/dodona_local/backup/making.py": (4, ("`tables` and the manifest of a backup that",)),
    "client/dodona_local/backup/manifest.py": (1, ("the manifest of a backup",)),
    "client/dodona_local/folder.py": (1, ("server logs",)),
    "client/dodona_local/adopting.py": (
        7,
        ("`replication.json`, when", "the folder of a node, when", "`adoption.json`"),
    ),
    "client/dodona_local/demo.py": (1, ("the folder of a node in the demonstration",)),
    "client/dodona_local/etcd_member.py": (1, ("sockets of etcd",)),
}
"""By module: how many such calls it has, and the rows of the page that are about them."""


def removals(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls by which a file may go: by their names, since types are not known here."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            is_path_s = name == "replace" and len(node.args) == 1 and not node.keywords
            whole = ast.unparse(node.func).removeprefix("self._")
            if name in ALWAYS or is_path_s or whole in OF_MODULES | OF_STORES:
                yield node


def found() -> dict[str, int]:
    counts: Counter[str] = Counter()
    for part in ("client", "oracle", "tablets"):
        for path in sorted((ROOT / part).rglob("*.py")):
            calls = list(removals(ast.parse(path.read_text())))
            if calls:
                counts[str(path.relative_to(ROOT))] = len(calls)
    return dict(counts)


def test_every_place_that_removes_a_file_is_known() -> None:
    assert found() == {name: count for name, (count, _) in KNOWN.items()}


def test_the_page_has_these_rows() -> None:
    _, _, behind = PAGE.read_text().partition(HEADING)
    assert behind, HEADING
    lines = behind.split("\n## ", maxsplit=1)[0].splitlines()
    cells = [line.split("|") for line in lines if line.startswith("| ")]
    assert all(row[2].strip() for row in cells)
    for name, (_, texts) in KNOWN.items():
        for text in texts:
            assert any(text in row[1] for row in cells), (name, text)


def test_a_new_removal_would_be_seen() -> None:
    text = "path.unlink()\nos.remove(p)\nshutil.rmtree(p)\nnew.replace(old)\nnames.remove(1)\n"
    assert len(list(removals(ast.parse(text)))) == 4
    stores = "obstore.delete(store, names)\nwith it.cursor() as cursor:\n    cursor.delete()\n"
    assert len(list(removals(ast.parse(stores)))) == 2
    assert not list(removals(ast.parse("text.replace('a', 'b')\nmessage.truncate(3)")))
