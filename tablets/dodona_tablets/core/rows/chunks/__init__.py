"""Chunks: immutable sorted files of versions, in which most rows of a tablet are.

A chunk is an Arrow IPC file of blocks (`layout`, `writing`) and an index of them (`index`,
`bloom`). It is opened from any two buffers (`chunk`, `block`), checked (`checking`), and read as
one tablet sees it (`view`, `mapping`); rows in memory become chunk layout and come back in `rows`.
A bulk batch becomes one as it is (`streams`, `ingest`).

Several chunks and stores in memory are merged a window of keys at a time (`merging`, on `vectors`):
to be read at a timestamp (`visibility`, `scanning`), or to become one chunk without what nobody may
read any more (`compacting`, `retiring`). So are the staged chunks of a bulk load with what they
meet, before they are seen (`zones`, `sealing`).

Knows no files: whoever has them hands over sinks and buffers.
"""
