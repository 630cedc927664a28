"""The network of the simulator: what is lost, repeated, slow, overtaken, cut off or clogged."""

from simulator.network import Links, Network, NetworkOptions
from simulator.world import World


def deliveries(options: NetworkOptions, seed: int = 1, count: int = 400) -> list[tuple[int, bytes]]:
    """(instant, payload) of everything that arrives of what is sent at once."""
    world, arrived = World(seed), list[tuple[int, bytes]]()
    network = Network(world, options.delay_us_mean)
    network.storm(options)

    def deliver(source: str, target: str, payload: bytes) -> None:
        assert (source, target) == ("a", "b")
        arrived.append((world.now_us, payload))

    for index in range(count):
        network.send("a", "b", b"%d" % index, deliver)
    world.run_until(60_000_000)
    return arrived


def test_a_calm_network_delivers_everything_once_and_in_order() -> None:
    arrived = deliveries(NetworkOptions())
    assert [int(payload) for _, payload in arrived] == list(range(400))
    assert all(at_us > 0 for at_us, _ in arrived)


def test_network_faults_are_about_as_frequent_as_their_rates() -> None:
    assert 150 < len(deliveries(NetworkOptions(loss_rate=0.5))) < 250
    assert 550 < len(deliveries(NetworkOptions(repeat_rate=0.5))) < 650
    slow = deliveries(NetworkOptions(slow_rate=0.5, slow_us_max=4_000_000))
    assert 150 < sum(at_us > 10_000 for at_us, _ in slow) < 250


def test_reordered_datagrams_overtake_earlier_datagrams() -> None:
    payloads = [int(payload) for _, payload in deliveries(NetworkOptions(reorder_rate=0.5))]
    assert sorted(payloads) == list(range(400))
    assert payloads != sorted(payloads)


def test_equal_seeds_deliver_equally() -> None:
    options = NetworkOptions(loss_rate=0.1, repeat_rate=0.1, slow_rate=0.1, slow_us_max=1_000)
    assert deliveries(options) == deliveries(options)
    assert deliveries(options) != deliveries(options, seed=2)


def test_a_cut_link_loses_all_datagrams_in_one_direction_until_it_is_mended() -> None:
    world, arrived = World(1), list[str]()
    network = Network(world, 300)
    network.cut("a", "b")

    def deliver(source: str, target: str, _: bytes) -> None:
        arrived.append(source + target)

    network.send("a", "b", b"", deliver)
    network.send("b", "a", b"", deliver)
    network.mend("a", "b")
    network.send("a", "b", b"", deliver)
    network.cut("a", "b")
    network.calm()
    network.send("a", "b", b"", deliver)
    world.run_until(1_000_000)
    assert sorted(arrived) == ["ab", "ab", "ba"]


class Post:
    """A network, and who got what when."""

    def __init__(self, options: NetworkOptions | None = None) -> None:
        self.world = World(1)
        self.network = Network(self.world, 300)
        self.network.storm(options or NetworkOptions())
        self.arrived: list[str] = []

    def send(self, *links: str) -> None:
        for link in links:
            self.network.send(link[0], link[1], b"", self._deliver)

    def wait(self, duration_us: int = 10_000) -> None:
        self.world.run_until(self.world.now_us + duration_us)

    def _deliver(self, source: str, target: str, _: bytes) -> None:
        self.arrived.append(source + target)


def test_a_clogged_link_holds_datagrams_and_releases_them_together() -> None:
    post = Post()
    post.send("ab")  # on its way when the clog begins
    post.network.clog("a", "b")
    post.send("ab", "ba")
    post.wait()
    assert post.arrived == ["ba"], "the other direction is another link"
    post.send("ab")
    post.wait(5_000_000)
    assert post.arrived == ["ba"]
    post.network.unclog("a", "b")
    post.wait(1)
    assert post.arrived == ["ba", "ab", "ab", "ab"]
    assert post.network.fault_counts["datagram clogged"] == 3


def test_wrongs_overlap_and_a_link_is_well_when_the_last_is_over() -> None:
    links = Links()
    links.add("a", "b")
    links.add("a", "b")
    links.remove("a", "b")
    assert ("a", "b") in links
    links.remove("a", "b")
    assert ("a", "b") not in links
    links.remove("a", "b")
    links.add("a", "b")
    links.clear()
    links.remove("a", "b")
    assert ("a", "b") not in links


def test_datagrams_held_by_two_clogs_wait_for_the_end_of_both() -> None:
    post = Post()
    post.network.clog("a", "b")
    post.network.clog("a", "b")
    post.network.clog("c", "b")
    post.send("ab", "cb")
    post.wait()
    post.network.unclog("a", "b")
    post.network.unclog("c", "b")
    post.wait()
    assert post.arrived == ["cb"]
    post.network.unclog("a", "b")
    post.wait()
    assert post.arrived == ["cb", "ab"]


def test_nothing_can_be_learned_over_a_link_that_is_cut_or_clogged() -> None:
    network = Post().network
    assert not network.is_silent("a", "b")
    network.cut("b", "a")
    network.clog("c", "d")
    assert network.is_silent("a", "b")
    assert network.is_silent("b", "a")
    assert network.is_silent("d", "c")
    network.calm()
    assert not network.is_silent("a", "b")


def test_a_calm_network_holds_nothing_back() -> None:
    post = Post(NetworkOptions(loss_rate=1.0))
    post.network.clog("a", "b")
    post.send("ab")
    post.network.storm(NetworkOptions())
    post.send("ab")
    post.wait()
    post.network.cut("b", "a")
    post.network.calm()
    post.wait(1)
    assert post.arrived == ["ab"]
    post.send("ba")
    post.wait()
    assert post.arrived == ["ab", "ba"]


def test_all_that_goes_wrong_is_counted_by_kind() -> None:
    options = NetworkOptions(
        loss_rate=0.1, repeat_rate=0.1, slow_rate=0.1, reorder_rate=0.5, slow_us_max=1_000
    )
    post = Post(options)
    post.network.cut("b", "a")
    post.send(*["ab"] * 1_000, *["ba"] * 7)
    post.wait()
    counts = post.network.fault_counts
    assert counts["datagram cut off"] == 7
    assert len(post.arrived) == 1_000 - counts["datagram lost"] + counts["datagram repeated"]
    assert 50 < counts["datagram lost"] < 150
    assert 50 < counts["datagram repeated"] < 150
    assert 50 < counts["datagram slow"] < 150
    assert counts["datagram overtaken"] > 100


def test_without_rates_nothing_goes_wrong() -> None:
    post = Post()
    post.send(*["ab"] * 1_000)
    post.wait()
    assert not post.network.fault_counts
