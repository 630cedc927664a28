"""Find where the rows of a load meet other rows, or one another, without reading a row.

Owns: which ranges of keys a seal has to look at, and in which chunks. The answer comes from
indexes. `sealing` has the rules for these ranges. Rows that lie apart from all others are never
read: most rows of a load that brings new keys.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

from dodona_tablets.core.rows.chunks.view import ChunkView, Extent
from dodona_tablets.core.rows.store import DynamicStore
from dodona_wire.rows.keys import successor
from dodona_wire.types import KEY_MIN, Key, LoadMode, Timestamp

Layer = DynamicStore | ChunkView
"""A store or a chunk of a tablet."""
Range = tuple[Key, Key]

_STAGED: Final = 0
_EXISTING: Final = 1
_LATE: Final = 2
_ERASED: Final = 3


class Zone(NamedTuple):
    """A range `lower ≤ key < upper`, within an erased range or outside of all erased ranges."""

    lower: Key
    upper: Key
    is_erased: bool


def zones_of(
    staged: Iterable[ChunkView],
    existing: Sequence[Layer],
    mode: LoadMode,
    since: Timestamp,
    erased: Iterable[Range],
) -> list[Zone]:
    """Return the zones, in key order. They are as few as possible without more reading."""
    parts = [(it.lower, it.upper, _STAGED) for view in staged for it in view.extents()]
    for layer in existing:
        for it in extents_of(layer):
            parts.append((it.lower, it.upper, _EXISTING))
            if it.max_timestamp > since:
                parts.append((it.lower, it.upper, _LATE))
    parts += [(lower, upper, _ERASED) for lower, upper in erased]
    return _joined(parts, mode)


def views_met(
    staged: Sequence[ChunkView],
    existing: Sequence[Layer],
    mode: LoadMode,
    since: Timestamp,
    erased: Sequence[Range],
) -> list[ChunkView]:
    """Return the chunks in which zones may have rows. The choice is quick and not exact: it takes
    a chunk for one range, and so it may return some more."""
    counts_all = mode in ("insert", "update")
    counted = [it for it in existing if counts_all or it.max_timestamp > since]
    ours = _union([(it.lower, it.upper) for it in staged])
    theirs = _union([it for layer in counted for it in _bounds(layer)] + _repeated(staged))
    erased = _union(erased)
    met = [it for it in staged if mode == "update" or _meets(it, theirs) or _meets(it, erased)]
    late = {id(it) for it in counted}
    for layer in existing:
        if isinstance(layer, ChunkView):
            is_met = (id(layer) in late and _meets(layer, ours)) or _meets(layer, erased)
            met += [layer] if is_met else []
    return met


def _bounds(layer: Layer) -> list[Range]:
    if isinstance(layer, ChunkView):
        return [(layer.lower, layer.upper)]
    return [] if layer.bounds is None else [(layer.bounds[0], successor(layer.bounds[1]))]


def _repeated(views: Sequence[ChunkView]) -> list[Range]:
    """Return the ranges that lie in more than one chunk."""
    ranges: list[Range] = []
    end = KEY_MIN
    for view in sorted(views, key=lambda it: it.lower):
        ranges.append((view.lower, min(end, view.upper)))
        end = max(end, view.upper)
    return ranges


def _union(ranges: Iterable[Range]) -> list[Range]:
    """Return what lies in any of the ranges, in order and apart."""
    found: list[Range] = []
    for lower, upper in sorted(it for it in ranges if it[0] < it[1]):
        if found and lower <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], upper)
        else:
            found.append((lower, upper))
    return found


def _meets(view: ChunkView, ranges: Sequence[Range]) -> bool:
    """Return whether a chunk has a part of ranges, which are in order and apart."""
    place = bisect_right(ranges, view.lower, key=lambda it: it[1])
    return place < len(ranges) and ranges[place][0] < view.upper


def extents_of(layer: Layer) -> Iterator[Extent]:
    """Yield where the rows of a layer are."""
    if isinstance(layer, ChunkView):
        yield from layer.extents()
    elif layer.bounds is not None:
        lower, upper = layer.bounds
        yield Extent(lower, successor(upper), layer.max_timestamp)


def _joined(parts: list[tuple[Key, Key, int]], mode: LoadMode) -> list[Zone]:
    """Return the zones that matter between the ends of these parts. Zones with nothing in between
    are joined."""
    events = [(lower, kind, 1) for lower, upper, kind in parts if lower < upper]
    events += [(upper, kind, -1) for lower, upper, kind in parts if lower < upper]
    counts = [0, 0, 0, 0]
    zones: list[Zone] = []
    goes_on = False
    for (lower, kind, change), (upper, *_) in pairwise(sorted(events)):
        counts[kind] += change
        if lower == upper:
            continue
        is_erased = counts[_ERASED] > 0
        if not _matters(counts, mode):
            goes_on = goes_on and not (counts[_STAGED] or counts[_EXISTING])
        elif goes_on and zones[-1].is_erased == is_erased:
            zones[-1] = zones[-1]._replace(upper=upper)
        else:
            zones.append(Zone(lower, upper, is_erased))
            goes_on = True
    return zones


def _matters(counts: Sequence[int], mode: LoadMode) -> bool:
    staged, existing, late, erased = counts
    if not staged:
        return erased > 0 and existing > 0
    meets = existing if erased or mode == "insert" else late
    return staged > 1 or meets > 0 or mode == "update"


def lanes_of(views: Iterable[ChunkView], zone: Zone) -> list[list[ChunkView]]:
    """Return the views that have keys in a zone, in as few lanes as possible. The views of a lane
    lie one behind the other. So a merge has as many sources as views overlap, not as many as there
    are views."""
    found = [it for it in views if it.lower < zone.upper and zone.lower < it.upper]
    lanes: list[list[ChunkView]] = []
    ends: list[tuple[Key, int]] = []
    for view in sorted(found, key=lambda it: it.lower):
        if ends and ends[0][0] <= view.lower:
            _, lane = heappop(ends)
            lanes[lane].append(view)
        else:
            lane = len(lanes)
            lanes.append([view])
        heappush(ends, (view.upper, lane))
    return lanes
