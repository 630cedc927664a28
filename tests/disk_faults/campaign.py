"""Many recordings, and all that disks may make of them: worked off by processes side by side.

Owns: what is done with one workload and one seed, in three ways: the power is cut, calls fail, the
disk lies. A job does all it can with its recordings, so that the number of images is a goal that is
passed, not met. Must not import: any core.
"""

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Literal, get_args

from disk_faults.cuts import Cut, cuts_of
from disk_faults.damage import DAMAGES, draw_damage
from disk_faults.images import write_image
from disk_faults.injection import Counting, FailAt, KillAt, Site, sites_of
from disk_faults.operations import Ending, Marked, Recording
from disk_faults.recording import record
from disk_faults.syscalls import identify
from disk_faults.tracer import Saboteur
from disk_faults.verdict import judge, judge_apart, scratch
from disk_faults.workloads import WORKLOADS, Workload
from simulator.pool import Failed, work_off

Way = Literal["power cuts", "errors", "damage"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)

LOUD_STATUSES: Final = (1, 70)
"""A traceback's, and a server's that stops since its state is in doubt."""
PARTS: Final = 8
"""In so many jobs every call of a workload fails in every way."""
PLACES_PER_SITE: Final = 3
DRAWS_AFTER_ERROR: Final = 1
DAMAGES_PER_JOB: Final = 10
PROBLEMS_PER_JOB_MAX: Final = 3

Watch = Callable[["Tally"], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What is done in one go, in a process of its own. `part` is of the calls that are to fail."""

    way: Way
    workload: int
    seed: int
    part: int = 0

    def __str__(self) -> str:
        name = WORKLOADS[self.workload].name
        return f"--way '{self.way}' --workload '{name}' --seed {self.seed} --part {self.part}"


@dataclass(slots=True)
class Tally:
    """What came of jobs. A problem is a broken promise, with what shows it again."""

    images: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By workload and kind."""
    damage: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind and outcome."""
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.images.update(other.images)
        self.damage.update(other.damage)
        self.counts.update(other.counts)
        self.problems += other.problems

    @property
    def image_count(self) -> int:
        return sum(self.images.values())


def run_campaign(image_count: int, seed: int, worker_count: int, watch: Watch) -> tuple[Tally, int]:
    """So many images at least. → what came of them, and how many seeds it took from this one on."""
    tally = Tally()
    seed_count = 0
    while tally.image_count < image_count:
        per_seed = tally.image_count // seed_count if seed_count else image_count
        more = max(1, -(-(image_count - tally.image_count) // max(1, per_seed)))
        seeds = range(seed + seed_count, seed + seed_count + more)
        run_jobs([job for each in seeds for job in jobs_of(each)], worker_count, watch, tally)
        seed_count += more
    return tally, seed_count


def jobs_of(seed: int) -> Iterator[Job]:
    """All that is done with one seed."""
    for way in WAYS:
        for workload in range(len(WORKLOADS)):
            yield Job(way, workload, seed, seed % PARTS)


def run_jobs(
    jobs: Sequence[Job], worker_count: int, watch: Watch, tally: Tally | None = None
) -> Tally:
    """All of them; `watch` sees what has come so far."""
    tally = Tally() if tally is None else tally
    for job, answer in work_off(run_job, jobs, worker_count):
        if isinstance(answer, Failed):
            tally.problems.append(f"{job}: {answer.text}")
        else:
            tally.add(answer)
        watch(tally)
    return tally


def run_job(job: Job) -> Tally:
    """One of them, here. Raises Untraceable where nothing can be recorded."""
    return examine(WORKLOADS[job.workload], job.way, job.seed, job.part)


def examine(workload: Workload, way: Way, seed: int, part: int = 0) -> Tally:
    """What becomes of a workload in one way. Raises Untraceable as `run_job`."""
    examination = _Examination(workload, seed, f"--way '{way}' --seed {seed} --part {part}")
    with suppress(_Hopeless):
        match way:
            case "power cuts":
                examination.cut_power()
            case "errors":
                examination.let_fail(part)
            case "damage":
                examination.damage()
    return examination.tally


class _Hopeless(Exception):
    """So many promises were broken that more would not tell more."""


class _Examination:
    """One workload under one seed."""

    def __init__(self, workload: Workload, seed: int, name: str) -> None:
        self.tally = Tally()
        self._workload = workload
        self._seed = seed
        self._name = f"--workload '{workload.name}' {name}"
        self._random = Random(self._name)

    # The power is cut

    def cut_power(self) -> None:
        """In one or two lives, of which the first may be killed, and then in a life that begins
        with what a power cut left."""
        counting = Counting()
        with scratch() as folder:
            recording = self._live(folder, Recording(), counting)
            self._expect_end(recording, "its life")
        if self._random.random() < 0.5:
            recording = self._live_twice(counting.counts.total())
        chosen = self._judge_all(recording, "")
        marks = recording.marks()[: chosen.mark_count]
        with scratch() as folder:
            write_image(chosen.image, folder)
            life = Recording([Marked(mark) for mark in marks])
            identify(folder, life)
            begin = len(life.operations)
            self._live(folder, life, Counting())
            self._expect_end(life, f"a life after a {chosen}")
            self._judge_all(life, f" in a life after a {chosen}", begin)
        self.tally.counts["recordings"] += 2

    def _live_twice(self, call_count: int) -> Recording:
        with scratch() as folder:
            recording = Recording()
            self._live(folder, recording, KillAt(self._random.randint(1, call_count)))
            self.tally.counts["processes killed"] += 1
            self._live(folder, recording, Counting())
            self._expect_end(recording, "a life after a kill")
        return recording

    def _judge_all(self, recording: Recording, where: str, begin: int = 0) -> Cut:
        """→ one of the cuts, for others to go on from."""
        chosen: Cut | None = None
        marks = recording.marks()
        places = range(begin, len(recording.operations) + 1)
        for number, cut in enumerate(cuts_of(recording.operations, self._seed, places)):
            self._judge(cut, marks, cut.kind, where)
            if self._random.random() * (number + 1) < 1 or chosen is None:
                chosen = cut
        assert chosen is not None, "there is always an image"
        return chosen

    # Calls fail

    def let_fail(self, part: int) -> None:
        """One part of the calls, each in every way."""
        counting = Counting()
        with scratch() as folder:
            self._live(folder, Recording(), counting)
        for site in [*sites_of(counting.counts)][part::PARTS]:
            self._fail_at(site)

    def _fail_at(self, site: Site) -> None:
        failing = FailAt(site)
        with scratch() as folder:
            recording = self._live(folder, Recording(), failing)
            if failing.name is None:
                return  # this time there were fewer calls of that kind
            hit = len(recording.operations)
            self._check_end(recording.endings[-1], site, failing.name)
            self._live(folder, recording, Counting())
            self._expect_end(recording, f"a life after {site}")
        self.tally.counts["calls that failed"] += 1
        places = self._random.choices(
            range(max(0, hit - 2), len(recording.operations) + 1), k=PLACES_PER_SITE
        )
        cuts = cuts_of(recording.operations, self._seed, {*places}, DRAWS_AFTER_ERROR)
        for cut in cuts:
            self._judge(cut, recording.marks(), "after an error", f" after {site}")

    def _check_end(self, ending: Ending, site: Site, name: str) -> None:
        """Loud, unless there was only no room; and then what was promised is judged."""
        if ending.status in LOUD_STATUSES and ending.words:
            self.tally.counts["processes that ended loudly"] += 1
        elif ending.status == 0 and site.failure.error != errno.EIO:
            self.tally.counts["processes that got by without room"] += 1
        else:
            self._complain(f"{site} of {name}: ended with {ending.status}: {ending.words}")

    # The disk lies

    def damage(self) -> None:
        with scratch() as folder:
            recording = self._live(folder, Recording(), Counting())
        marks = recording.marks()
        for kind in DAMAGES:
            for number in range(DAMAGES_PER_JOB):
                random = Random(f"{self._seed}/{kind}/{number}")
                image, name, offset = draw_damage(recording.operations, kind, random)
                verdict = judge_apart(self._workload, image, self._seed, marks)
                self.tally.images[self._workload.name, "damaged"] += 1
                self.tally.damage[kind, verdict.outcome] += 1
                if verdict.outcome == "wrong":
                    self._complain(f"{kind} at {offset} of {name}: {verdict.words}")

    # Their parts

    def _live(self, folder: Path, recording: Recording, saboteur: Saboteur) -> Recording:
        return record(
            lambda mark: self._workload.run(folder, self._seed, mark), folder, recording, saboteur
        )

    def _expect_end(self, recording: Recording, what: str) -> None:
        ending = recording.endings[-1]
        if ending.status != 0:
            self._complain(f"{what} ended with {ending.status}: {ending.words}")

    def _judge(self, cut: Cut, marks: Sequence[bytes], kind: str, where: str) -> None:
        verdict = judge(self._workload, cut.image, self._seed, marks[: cut.mark_count])
        self.tally.images[self._workload.name, kind] += 1
        if verdict.outcome != "right":
            self._complain(f"{cut}{where}: {verdict.outcome}: {verdict.words}")

    def _complain(self, text: str) -> None:
        self.tally.problems.append(f"{self._name}: {text}")
        if len(self.tally.problems) >= PROBLEMS_PER_JOB_MAX:
            raise _Hopeless
