"""Keep most rows of a tablet in chunks: immutable sorted files of versions.

A chunk is an Arrow IPC file of blocks (`layout`, `writing`) and an index of them (`index`,
`bloom`). It is opened from any two buffers (`chunk`, `block`) and checked (`checking`). A tablet
reads it through a view (`view`, `mapping`). `rows` converts rows in memory to chunk layout and
back. A bulk batch becomes a chunk without a store in memory (`streams`, `ingest`).

Chunks and stores in memory are merged a window of keys at a time (`merging`, on `vectors`). The
purpose is to read them at a timestamp (`visibility`, `scanning`), or to make one chunk of them.
That chunk leaves out the versions that no read may see any more (`compacting`, `retiring`). The
staged chunks of a bulk load are merged with the rows that they meet, before readers see them
(`zones`, `sealing`).

Knows no files: callers pass sinks and buffers.
"""
