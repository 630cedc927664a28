"""A small model of the catalog's tree and its master transactions, for the test against it.

The tree is a dictionary from paths to entries. A transaction is the list of what was done under it:
what it sees is what its parent sees with all of that done again. So the model has no layers, and
nothing is ever merged; that this is the same at all is what locks are for.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Path = tuple[str, ...]
Action = tuple[Any, ...]
NOBODY = 0
MISSING = "missing"
EXISTS = "exists"
INVALID = "invalid"
LOCKED = "locked"


@dataclass
class Entry:
    identity: int
    kind: Literal["directory", "table"]
    attributes: dict[str, Any] = field(default_factory=dict)


Forest = dict[Path, Entry]


@dataclass(frozen=True)
class Claim:
    owner: int
    identity: int
    mode: str
    part: str = ""

    def bars(self, other: "Claim") -> bool:
        if self.identity != other.identity:
            return False
        if "exclusive" in (self.mode, other.mode):
            return True
        return self.part != "" and self.part == other.part


@dataclass
class Open:
    parent: int
    done: list[Action] = field(default_factory=list)


class Refused(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Model:
    def __init__(self) -> None:
        self.forest: Forest = {(): Entry(0, "directory")}
        self.open: dict[int, Open] = {}
        self.claims: list[Claim] = []
        self.mounted: set[int] = set()
        self.identity_count = 0

    # What is seen

    def seen_by(self, owner: int) -> Forest:
        if owner == NOBODY:
            forest = {path: copy_of(entry) for path, entry in self.forest.items()}
        else:
            forest = self.seen_by(self.open[owner].parent)
            for action in self.open[owner].done:
                repeat(forest, action)
        return forest

    def kin(self, owner: int) -> list[int]:
        return [] if owner == NOBODY else [owner, *self.kin(self.open[owner].parent)]

    def nested_in(self, owner: int) -> list[int]:
        inside = [it for it, opened in self.open.items() if opened.parent == owner]
        return [each for it in inside for each in (*self.nested_in(it), it)]

    # What is done

    def carry_out(self, owner: int, action: Action, claims: list[Claim]) -> None:
        """Raises Refused if somebody else's lock bars one of these claims."""
        kin = self.kin(owner)
        others = [it for it in self.claims if it.owner not in kin]
        if any(it.bars(claim) for claim in claims for it in others):
            raise Refused(LOCKED)
        if owner == NOBODY:
            repeat(self.forest, action)
        else:
            self.claims += claims
            self.open[owner].done.append(action)

    def create(self, owner: int, path: Path, kind: str, is_recursive: bool) -> None:
        forest = self.seen_by(owner)
        place = self.place_for(forest, path, is_recursive)
        made = [path[:length] for length in range(len(place) + 1, len(path) + 1)]
        identities = tuple(self.fresh() for _ in made)
        action = ("create", tuple(made), identities, kind)
        self.carry_out(owner, action, [child_claim(owner, forest, made[0])])

    def place_for(self, forest: Forest, path: Path, is_recursive: bool) -> Path:
        """The nearest directory there is above a path at which there is nothing."""
        if path in forest:
            raise Refused(EXISTS)
        above = path[:-1]
        while above not in forest:
            above = above[:-1]
        if forest[above].kind == "table":
            raise Refused(INVALID)
        if above != path[:-1] and not is_recursive:
            raise Refused(MISSING)
        return above

    def fresh(self) -> int:
        self.identity_count += 1
        return self.identity_count

    def remove(self, owner: int, path: Path, is_recursive: bool) -> None:
        forest = self.seen_by(owner)
        if path not in forest:
            raise Refused(MISSING)
        gone = [forest[it].identity for it in below(forest, path)]
        if path == () or (len(gone) > 1 and not is_recursive):
            raise Refused(INVALID)
        claims = [Claim(owner, identity, "exclusive") for identity in gone]
        self.carry_out(owner, ("remove", path), [child_claim(owner, forest, path), *claims])

    def move(self, owner: int, source: Path, target: Path, is_recursive: bool) -> None:
        forest, made, carried = self.carried(owner, source, target, is_recursive)
        claims = [
            child_claim(owner, forest, source),
            child_claim(owner, forest, made[0]),
            *(Claim(owner, forest[it].identity, "exclusive") for it in carried),
        ]
        identities = tuple(self.fresh() for _ in made[:-1])
        self.carry_out(owner, ("move", source, target, tuple(made[:-1]), identities), claims)

    def copy(self, owner: int, source: Path, target: Path, is_recursive: bool) -> None:
        forest, made, carried = self.carried(owner, source, target, is_recursive)
        claims = [child_claim(owner, forest, made[0])]
        if owner != NOBODY:
            tables = [it for it in carried if forest[it].kind == "table"]
            claims += [Claim(owner, forest[it].identity, "shared") for it in tables]
        identities = tuple(self.fresh() for _ in made[:-1])
        copies = tuple(
            (target + it[len(source) :], self.fresh(), forest[it].kind, forest[it].attributes)
            for it in carried
        )
        action = ("copy", tuple(made[:-1]), identities, copies)
        self.carry_out(owner, action, claims)

    def carried(
        self, owner: int, source: Path, target: Path, is_recursive: bool
    ) -> tuple[Forest, list[Path], list[Path]]:
        forest = self.seen_by(owner)
        if source not in forest:
            raise Refused(MISSING)
        if source == ():
            raise Refused(INVALID)
        if target in forest:
            raise Refused(EXISTS)
        place = self.place_for(forest, target, is_recursive=True)
        if target[: len(source)] == source:
            raise Refused(INVALID)
        if place != target[:-1] and not is_recursive:
            raise Refused(MISSING)
        carried = list(below(forest, source))
        if any(forest[it].identity in self.mounted for it in carried):
            raise Refused(INVALID)
        made = [target[:length] for length in range(len(place) + 1, len(target) + 1)]
        return forest, made, carried

    def set(self, owner: int, path: Path, name: str, value: Any) -> None:
        """None removes the attribute."""
        forest = self.seen_by(owner)
        if path not in forest or (value is None and name not in forest[path].attributes):
            raise Refused(MISSING)
        claim = Claim(owner, forest[path].identity, "shared", "@" + name)
        self.carry_out(owner, ("set", path, name, value), [claim])

    def lock(self, owner: int, path: Path, mode: str, part: str) -> None:
        forest = self.seen_by(owner)
        if path not in forest:
            raise Refused(MISSING)
        self.carry_out(owner, ("lock",), [Claim(owner, forest[path].identity, mode, part)])

    def toggle_mount(self, path: Path) -> None:
        """Mount the table, or unmount it."""
        entry = self.forest.get(path)
        if entry is None or entry.kind != "table":
            raise Refused(MISSING)
        if any(claim.identity == entry.identity for claim in self.claims):
            raise Refused(LOCKED)
        self.mounted ^= {entry.identity}

    def begin(self, owner: int, parent: int) -> None:
        self.open[owner] = Open(parent)

    def commit(self, owner: int) -> None:
        for nested in self.nested_in(owner):
            self.forget(nested)
        ended = self.open[owner]
        if ended.parent == NOBODY:
            for action in ended.done:
                repeat(self.forest, action)
        else:
            self.open[ended.parent].done += ended.done
            self.claims += [
                Claim(ended.parent, it.identity, it.mode, it.part)
                for it in self.claims
                if it.owner == owner
            ]
        self.forget(owner)

    def abort(self, owner: int) -> None:
        for nested in (*self.nested_in(owner), owner):
            self.forget(nested)

    def forget(self, owner: int) -> None:
        del self.open[owner]
        self.claims = [claim for claim in self.claims if claim.owner != owner]


def copy_of(entry: Entry) -> Entry:
    return Entry(entry.identity, entry.kind, dict(entry.attributes))


def below(forest: Forest, path: Path) -> Iterator[Path]:
    return (it for it in sorted(forest) if it[: len(path)] == path)


def child_claim(owner: int, forest: Forest, path: Path) -> Claim:
    return Claim(owner, forest[path[:-1]].identity, "shared", "/" + path[-1])


def repeat(forest: Forest, action: Action) -> None:
    """Do again what was done. That it can be is part of the test."""
    match action:
        case ("create", made, identities, kind):
            add_directories(forest, made[:-1], identities)
            add(forest, made[-1], Entry(identities[-1], kind))
        case ("remove", path):
            for it in list(below(forest, path)):
                del forest[it]
        case ("move", source, target, made, identities):
            add_directories(forest, made, identities)
            for it in list(below(forest, source)):
                add(forest, target + it[len(source) :], forest.pop(it))
        case ("copy", made, identities, copies):
            add_directories(forest, made, identities)
            for it, identity, kind, attributes in copies:
                add(forest, it, Entry(identity, kind, dict(attributes)))
        case ("set", path, name, value):
            forest[path].attributes[name] = value
            if value is None:
                del forest[path].attributes[name]


def add_directories(forest: Forest, paths: tuple[Path, ...], identities: tuple[int, ...]) -> None:
    for path, identity in zip(paths, identities, strict=False):
        add(forest, path, Entry(identity, "directory"))


def add(forest: Forest, path: Path, entry: Entry) -> None:
    assert path not in forest, f"{path} is there twice"
    assert forest[path[:-1]].kind == "directory"
    forest[path] = entry
