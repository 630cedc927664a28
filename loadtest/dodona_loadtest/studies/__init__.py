"""The studies, of storage, Spark and YTsaurus's client: what happens in each, to whom, and what is
asked."""

from dodona_loadtest.harness.study import Study
from dodona_loadtest.studies import bulk, growth, pauses, reads, restart, spark, ytsaurus

STUDIES: tuple[Study, ...] = (
    bulk.STUDY,
    reads.STUDY,
    growth.STUDY,
    restart.STUDY,
    pauses.LOOKUP_STUDY,
    pauses.COMMIT_STUDY,
)
SPARK_STUDIES: tuple[Study, ...] = (spark.STUDY,)
YTSAURUS_STUDIES: tuple[Study, ...] = (ytsaurus.STUDY,)
