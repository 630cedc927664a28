"""Random histories of a coordinator that loses answers: what candidates believe is true."""

from functools import partial

import pytest

from dodona_replication.core.document import Revisioned, owner_id
from simulator.candidates import LOG, Candidate, Mistake, Truth
from simulator.coordinator import CoordinatorOptions, CoordinatorPort, SimulatedEtcd
from simulator.network import Network, NetworkOptions
from simulator.world import World
from suite.levels import examples

STORM_US = 60_000_000
CALM_US = 20_000_000
STORM = NetworkOptions(
    loss_rate=0.1, repeat_rate=0.1, slow_rate=0.1, reorder_rate=0.3, slow_us_max=6_000_000
)
"""Slower than a caller waits: such a compare is applied long after its doubt began."""
SEEDS = 60
PLANTED_SEEDS = 100
"""One of them finds each mistake."""


class Run:
    """A history of some seconds, in which candidates end and others begin."""

    def __init__(self, seed: int, mistake: Mistake | None = None) -> None:
        self.world = World(seed)
        self.random = self.world.stream("run")
        self.network = Network(self.world, delay_us_mean=500)
        self.etcd = SimulatedEtcd(self.world, self.network)
        self.truth = Truth(self.etcd)
        self.mistake = mistake
        self.candidates: list[Candidate] = []
        self.ports: list[CoordinatorPort] = []

    def begin(self) -> None:
        port = CoordinatorPort(self.world, self.etcd, f"process-{len(self.candidates)}")
        self.ports.append(port)
        self.candidates.append(Candidate(self.world, port, self.truth, self.mistake))

    def living(self) -> list[Candidate]:
        pairs = zip(self.candidates, self.ports, strict=True)
        return [it for it, port in pairs if not port.is_closed]

    def storm(self) -> None:
        self.network.storm(STORM)
        self.etcd.storm(CoordinatorOptions(stale_rate=0.1, forgotten_rate=0.1))
        while self.world.now_us < STORM_US:
            match self.random.randrange(4):
                case 0:
                    self.etcd.lose_leader(self.random.randrange(3_000_000))
                case 1:
                    self.random.choice(self.ports).close()
                    self.begin()
                case 2:
                    name = self.random.choice(self.ports).name
                    self.network.clog(name, "etcd")
                    self.world.after(3_000_000, partial(self.network.unclog, name, "etcd"))
                case _:
                    pass
            self.world.run_until(self.world.now_us + self.random.randrange(4_000_000))

    def calm(self) -> None:
        self.network.calm()
        for it in self.candidates:
            it.rest()
        self.etcd.storm(CoordinatorOptions())
        self.world.run_until(self.world.now_us + CALM_US)


def run(seed: int, mistake: Mistake | None = None) -> Run:
    found = Run(seed, mistake)
    for _ in range(3):
        found.begin()
    found.storm()
    found.calm()
    found.truth.check_end()
    return found


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [run(seed) for seed in range(examples(SEEDS))]


def test_beliefs_are_true_in_random_histories(runs: list[Run]) -> None:
    for found in runs:
        assert found.truth.faults == [], f"seed {found.world.seed}"
    victory_count = sum(it.truth.victory_count for it in runs)
    settled_count = sum(it.truth.settled_count for it in runs)
    assert victory_count > settled_count > len(runs), "both are frequent"


def test_each_doubt_ends_in_the_calm(runs: list[Run]) -> None:
    for found in runs:
        assert [it.name for it in found.living() if it.is_in_doubt] == [], (
            f"seed {found.world.seed}"
        )


def test_a_watch_shows_rising_revisions_and_at_last_the_newest(runs: list[Run]) -> None:
    for found in runs:
        history = found.etcd.history[LOG]
        assert found.living()
        for candidate in found.living():
            revisions = [it.revision for it in candidate.seen]
            assert revisions == sorted({*revisions})
            assert all(it in history for it in candidate.seen)
            assert candidate.seen[-1] == history[-1], f"seed {found.world.seed}"


@pytest.mark.parametrize("mistake", Mistake)
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    assert any(run(seed, mistake).truth.faults for seed in range(PLANTED_SEEDS))


def test_one_seed_gives_one_history() -> None:
    first, second = run(7), run(7)
    assert first.world.trace.hexdigest() == second.world.trace.hexdigest()
    assert first.etcd.history == second.etcd.history
    assert run(8).etcd.history != first.etcd.history


def test_a_port_that_asks_only_for_changes_hears_no_old_document() -> None:
    found = run(1)
    newest = found.etcd.history[LOG][-1]
    port = CoordinatorPort(found.world, found.etcd, "late")
    heard: list[Revisioned] = []
    port.watch(LOG, newest.revision, heard.append)
    found.world.run_until(found.world.now_us + CALM_US)
    assert heard == []
    changed = newest.document.take_over(owner_id("late", bytes(8)))
    port.compare(LOG, newest.revision, changed, lambda _: None)
    found.world.run_until(found.world.now_us + CALM_US)
    assert [it.document for it in heard] == [changed]
