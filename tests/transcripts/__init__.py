"""Transcripts: the commit protocol as texts of what goes into cells, and what comes out.

A transcript is a text file. A paragraph is a step: a line with a command, a line `----`, and the
effects of the step, one on a line. Lines with `#` are for readers. The files in `commits/` follow
`docs/explanation/commit-protocol.md` and name its rules. `python -m transcripts` writes the effects
of all files anew: read the difference before you commit it. The manner is that of etcd's raft.
"""
