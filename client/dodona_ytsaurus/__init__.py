"""YTsaurus's HTTP API, for any server that is a client of Dodona.

`commands` has the API and its commands. They know the server that serves them only by the protocols
in `gateway`. `terms` has parameters, formats, errors and schemas in YTsaurus's terms, `query` its
query language, `yson` and `yt_json` its data formats.
Must not import: any server.
"""
