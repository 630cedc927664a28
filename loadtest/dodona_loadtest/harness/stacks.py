"""Where the time of a process went, from the stacks that py-spy saw. Pure.

Owns: the reading of py-spy's raw output, shares by function and by module, and the names of files.
Names are those of packages: no output says where on a machine the files are.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

TOP: Final = 12
LOOPS: Final = (("asyncio/runners.py", "Runner.run"), ("threading.py", "Thread.run"))
"""Functions outside of these only start them."""
FRAME: Final = re.compile(r"(?P<function>.*) \((?P<file>[^()]*?)(?::\d+)?\)")
ABSOLUTE: Final = re.compile(r"(?<![\w./:])/(?:[\w.+@~-]+/)+")
TITLE: Final = re.compile(r'(?P<begin><text id="title"[^>]*>)[^<]*</text>')
PACKAGES: Final = re.compile(r".*/(?:site-packages|dist-packages|python3\.\d+|lib64|lib)/")


@dataclass(slots=True)
class Profile:
    """The samples of one process."""

    samples: int = 0
    own: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By file and function: samples in which it is the innermost frame."""
    with_callees: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Samples that have it in any frame."""

    @property
    def modules(self) -> Counter[str]:
        """Samples by the file of the innermost frame."""
        found: Counter[str] = Counter()
        for (file, _), count in self.own.items():
            found[file] += count
        return found


def read_stacks(text: str) -> Profile:
    """Read py-spy's raw format. A line is a stack, outermost frame first, and a count."""
    profile = Profile()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [_frame(frame) for frame in stack.split(";") if frame]
        if not frames or not count.isdigit():
            continue
        profile.samples += int(count)
        profile.own[frames[-1]] += int(count)
        begin = max((place for place, it in enumerate(frames) if it in LOOPS), default=0)
        for frame in dict.fromkeys(frames[begin:]):
            profile.with_callees[frame] += int(count)
    return profile


def without_machine(text: str) -> str:
    """Return the text with the names that files have in their packages."""
    return ABSOLUTE.sub(lambda found: _in_package(found.group()), text)


def titled(graph: str, title: str) -> str:
    """Return a flame graph with another title than the command that made it."""
    return TITLE.sub(lambda found: f"{found['begin']}{escape(title)}</text>", graph, count=1)


def _in_package(folder: str) -> str:
    """Return the folder within its package; nothing if it is in no package."""
    within = PACKAGES.sub("", folder)
    return "" if within == folder else within


def process_name(command: Sequence[str]) -> str:
    """Return a process's name in words, from its command line."""
    words = list(command)
    if "dodona_oracle" in words:
        return words[words.index("dodona_oracle") + 1]
    if "dodona_tablets" in words and "replica" in words:
        return "replica"
    if "dodona_tablets" in words:
        return f"node {words[words.index('--cell') + 1]}" if "--cell" in words else "node"
    if any("multiprocessing.spawn" in word for word in words):
        return "client"
    if "pyspark.daemon" in words:
        return "executor"
    return "gateway" if "dodona_gateway" in words else "server"


def profile_lines(profile: Profile, seconds: float, samples_per_second: int) -> list[str]:
    """Return lines for a reader: how busy it was, and where. Shares are of its own time."""
    if not profile.samples:
        return ["It did nothing that was seen."]
    busy = profile.samples / (seconds * samples_per_second)
    modules = [[file, _share(count, profile)] for file, count in profile.modules.most_common(TOP)]
    chosen = dict.fromkeys(
        [it for it, _ in profile.own.most_common(TOP)]
        + [it for it, _ in profile.with_callees.most_common(2 * TOP)]
    )
    functions = [
        [
            f"`{function}`",
            file,
            _share(profile.own[file, function], profile),
            _share(profile.with_callees[file, function], profile),
        ]
        for file, function in sorted(chosen, key=lambda it: -profile.own[it])
    ]
    return [
        f"Busy for {busy:.0%} of the time ({profile.samples:,} samples).",
        "",
        *_table(("file", "itself"), modules),
        "",
        *_table(("function", "file", "itself", "with what it calls"), functions),
    ]


def _frame(text: str) -> tuple[str, str]:
    """Return file and function."""
    found = FRAME.fullmatch(text)
    if found is None:
        return "", text
    return without_machine(found["file"]), found["function"]


def _share(count: int, profile: Profile) -> str:
    return f"{count / profile.samples:.1%}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    rule = ["---" if column in ("file", "function") else "---:" for column in head]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]
