"""Whether all comes to an end if clients die: nothing that they leave keeps others for ever.

Owns: the states that follow any state without new accidents. Must not import: planted bugs.
"""

from serializable_model.model import SerializableModel
from serializable_model.promises import waiting
from serializable_model.state import Case, State


def unsettled(model: SerializableModel) -> str | None:
    """Return what never ends after some state, or None. The clients are alive, or all are dead, or
    one is. Each step without an accident leads further, so a state without one is an end."""
    clients = _clients(model.case)
    for dead in (0, sum(clients), *clients):
        frontier = _all_states(model)
        seen = set(frontier)
        while frontier:
            state = frontier.pop()
            after = [model.pack(it.state) for it in model.progress(state, dead)]
            if not after and (left := waiting(state, dead)):
                return f"clients {dead:b} are dead, and {left}"
            new = [it for it in dict.fromkeys(after) if it not in seen]
            seen.update(new)
            frontier += new
    return None


def _clients(case: Case) -> list[int]:
    """Return for each client a mask of its attempts."""
    first = [at if it.again_of is None else it.again_of for at, it in enumerate(case.txns)]
    return [
        sum(1 << at for at, its in enumerate(first) if its == client) for client in sorted({*first})
    ]


def _all_states(model: SerializableModel) -> list[State]:
    first = model.pack(model.first())
    seen, frontier = {first}, [first]
    for state in frontier:
        for step in model.steps(state):
            after = model.pack(step.state)
            if after not in seen:
                seen.add(after)
                frontier.append(after)
    return frontier
