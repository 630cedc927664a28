"""Virtual time, dice and clocks of the simulator."""

from hypothesis import given
from hypothesis import strategies as st

from simulator.world import PPM, UNIX_US_AT_START, Clock, World

# Time and dice


def test_events_run_in_the_order_of_their_instants_and_of_their_making() -> None:
    world, seen = World(1), list[tuple[str, int]]()

    def see(name: str) -> None:
        seen.append((name, world.now_us))

    world.after(20, lambda: see("late"))
    world.after(10, lambda: see("first"))
    world.after(10, lambda: see("second"))
    world.after(10, lambda: world.after(0, lambda: see("third")))
    world.run_until(15)
    assert seen == [("first", 10), ("second", 10), ("third", 10)]
    assert world.now_us == 15
    world.run_until(20)
    assert seen[-1] == ("late", 20)


def test_streams_depend_on_seed_and_name_only() -> None:
    world = World(1)
    before = World(1).stream("b").random()
    world.stream("a").random()
    assert world.stream("b").random() == before
    assert world.stream("a").random() != before
    assert World(2).stream("b").random() != before


def test_a_clock_step_changes_only_the_wall_time() -> None:
    world = World(1)
    clock = Clock(world, instant_base_us=1_000)
    world.run_until(5)
    assert clock.now() == (1_005, UNIX_US_AT_START + 5)
    clock.step(-100)
    assert clock.now() == (1_005, UNIX_US_AT_START - 95)
    assert clock.delay_until(1_010) == 5
    assert clock.delay_until(3) == 0
    clock.restart(7)
    assert clock.now().instant_us == 12


def test_a_wall_clock_may_stand_still_or_hurry() -> None:
    world = World(1)
    clock = Clock(world, instant_base_us=0)
    world.run_until(10)
    clock.set_rate(0.0)
    world.run_until(30)
    assert clock.now() == (30, UNIX_US_AT_START + 10)
    clock.set_rate(2.0)
    world.run_until(35)
    assert clock.now() == (35, UNIX_US_AT_START + 20)
    clock.step(-5)
    clock.set_rate(1.0)
    world.run_until(36)
    assert clock.now().unix_us == UNIX_US_AT_START + 16


def test_a_monotonic_clock_may_go_a_little_wrong_but_never_back() -> None:
    world = World(1)
    clock = Clock(world, instant_base_us=500)
    world.run_until(1_000_000)
    clock.set_instant_drift(10_000)
    world.run_until(2_000_000)
    assert clock.now().instant_us == 500 + 2_010_000
    clock.set_instant_drift(-10_000)
    assert clock.now().instant_us == 500 + 2_010_000
    world.run_until(3_000_000)
    assert clock.now().instant_us == 500 + 3_000_000
    clock.restart(7)
    assert clock.now().instant_us == 7 + 3_000_000
    world.run_until(4_000_000)
    assert clock.now().instant_us == 7 + 3_990_000, "a new process on the same machine"
    assert clock.now().unix_us == UNIX_US_AT_START + 4_000_000


@given(
    st.integers(-PPM // 2, PPM // 2),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
)
def test_a_delay_ends_when_the_clock_shows_the_instant_and_not_before(
    drift_ppm: int, base_us: int, before_us: int, wait_us: int
) -> None:
    world = World(1)
    clock = Clock(world, base_us)
    clock.set_instant_drift(drift_ppm)
    world.run_until(before_us)
    due_us = clock.now().instant_us + wait_us
    delay_us = clock.delay_until(due_us)
    assert clock.delay_of(wait_us) == delay_us
    if delay_us:
        world.run_until(before_us + delay_us - 1)
        assert clock.now().instant_us < due_us
    world.run_until(before_us + delay_us)
    assert clock.now().instant_us >= due_us
    assert clock.delay_until(due_us) == 0
