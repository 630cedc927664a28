"""Worker processes: every job gets an answer, whatever becomes of its worker."""

import math
import os
import signal
import time
from contextlib import closing
from multiprocessing import active_children

from simulator.pool import JOBS_PER_BATCH, Failed, work_off

# Workers import what they are to do: here it is in the standard library.


def test_every_job_is_answered() -> None:
    others = {*active_children()}
    jobs = range(-5 * JOBS_PER_BATCH, 0)
    assert dict(work_off(abs, jobs, worker_count=2)) == {job: -job for job in jobs}
    assert {*active_children()} == others


def test_more_workers_than_jobs_and_no_jobs_at_all() -> None:
    assert list(work_off(abs, [-7], worker_count=3)) == [(-7, 7)]
    assert list(work_off(abs, [], worker_count=3)) == []


def test_an_error_in_one_job_does_not_affect_the_other_jobs() -> None:
    answers = dict(work_off(math.sqrt, [4, -1, 9], worker_count=1))
    failed = answers.pop(-1)
    assert isinstance(failed, Failed)
    assert failed.text.endswith("ValueError: math domain error")
    assert answers == {4: 2.0, 9: 3.0}


def test_a_worker_that_dies_is_reported_with_its_job() -> None:
    """The other jobs of its batch are done by others, which here die as well."""
    codes = range(1, 3 * JOBS_PER_BATCH)
    answers = dict(work_off(os._exit, codes, worker_count=1))
    expected = {code: Failed(f"its process ended with exit code {code}") for code in codes}
    assert answers == expected


def test_workers_leave_an_interruption_to_their_caller() -> None:
    interrupt, kill = signal.SIGINT, signal.SIGKILL
    answers = list(work_off(signal.raise_signal, [interrupt, kill, interrupt], worker_count=1))
    died = Failed("its process ended with exit code -9")
    assert answers == [(interrupt, None), (kill, died), (interrupt, None)]


def test_a_caller_that_stops_reading_answers_ends_the_workers() -> None:
    others = {*active_children()}
    with closing(work_off(time.sleep, [0, 1_000, 1_000], worker_count=2)) as answers:
        assert next(answers) == (0, None)
        assert {*active_children()} != others
    assert {*active_children()} == others
