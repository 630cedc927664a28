"""The studies of the storage: what happens in each, to whom, and what is asked of it."""

from dodona_loadtest.harness.study import Study
from dodona_loadtest.studies import bulk, growth, pauses, reads, restart

STUDIES: tuple[Study, ...] = (
    bulk.STUDY,
    reads.STUDY,
    growth.STUDY,
    restart.STUDY,
    pauses.LOOKUP_STUDY,
    pauses.COMMIT_STUDY,
)
