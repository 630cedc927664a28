"""How YCSB chooses keys: its hash, and its zipfian, scrambled, latest and uniform choices. Pure.

Owns: the arithmetic of YCSB's core workload, so that the same rows are hot. Ranks follow Gray and
others ("Quickly generating billion-record synthetic databases", 1994). Only the first two ranks are
exact, and a formula comes close for the others. Callers hand in random numbers.
"""

from collections.abc import Callable
from random import Random
from typing import Final

FNV_OFFSET: Final = 0xCBF29CE484222325
FNV_PRIME: Final = 0x100000001B3
BITS_64: Final = (1 << 64) - 1
SCRAMBLED_ITEMS: Final = 10_000_000_000
"""Ranks that are hashed onto the keys. There are so many that the number of keys does not change
which ones are hot."""
SUMMED_ONE_BY_ONE: Final = 10_000


def hash_64(number: int) -> int:
    """Return FNV-1a of the number's eight bytes, lowest first, as 64 bits without the sign."""
    hashed = FNV_OFFSET
    for _ in range(8):
        hashed = (hashed ^ (number & 0xFF)) * FNV_PRIME & BITS_64
        number >>= 8
    return hashed if hashed < 1 << 63 else (1 << 64) - hashed


def zeta(count: int, theta: float) -> float:
    """Return the sum of 1/i^theta for i from 1 to `count`, its far part by Euler-Maclaurin."""
    near = min(count, SUMMED_ONE_BY_ONE)
    total: float = sum(float(place) ** -theta for place in range(1, near + 1))
    if near < count:
        total += (float(count) ** (1 - theta) - near ** (1 - theta)) / (1 - theta)
        total += (count**-theta - near**-theta) / 2
        total += theta * (near ** (-theta - 1) - count ** (-theta - 1)) / 12
    return total


class Zipfian:
    """Ranks 0 to n-1: a lower one is more likely. n may grow."""

    def __init__(self, count: int, theta: float) -> None:
        self._theta = theta
        self._alpha = 1 / (1 - theta)
        self._count = 0
        self._zeta = 0.0
        self._eta = 0.0
        self.grow(count)

    def grow(self, count: int) -> None:
        """Grow to that many ranks; no change if there are as many."""
        if count <= self._count:
            return
        if self._count and count - self._count < SUMMED_ONE_BY_ONE:
            added = range(self._count + 1, count + 1)
            self._zeta += sum(place**-self._theta for place in added)
        else:
            self._zeta = zeta(count, self._theta)
        self._count = count
        if count > 2:
            share = 1 - (2 / count) ** (1 - self._theta)
            self._eta = share / (1 - zeta(2, self._theta) / self._zeta)

    def draw(self, random: Random) -> int:
        """Draw a rank."""
        dice = random.random()
        place = dice * self._zeta
        if place < 1 or self._count == 1:
            return 0
        if place < 1 + 0.5**self._theta or self._count == 2:
            return 1
        rank = int(self._count * (self._eta * dice - self._eta + 1) ** self._alpha)
        return min(rank, self._count - 1)


Choice = Callable[[Random], int]
"""Draws the number of a record that exists."""


def scrambled_zipfian(space: int, theta: float, newest: Callable[[], int]) -> Choice:
    """Choose numbers so that the likeliest are scattered over the keys. `space` has room for later
    records. A number above `newest`, whose record does not exist yet, is drawn again."""
    ranks = Zipfian(SCRAMBLED_ITEMS, theta)

    def draw(random: Random) -> int:
        while True:
            number = hash_64(ranks.draw(random)) % space
            if number <= newest():
                return number

    return draw


def latest(theta: float, newest: Callable[[], int]) -> Choice:
    """Choose newer numbers more often."""
    ranks = Zipfian(newest() + 1, theta)

    def draw(random: Random) -> int:
        ranks.grow(newest() + 1)
        return newest() - ranks.draw(random)

    return draw


def uniform(newest: Callable[[], int]) -> Choice:
    """Choose all numbers equally often."""
    return lambda random: random.randrange(newest() + 1)
