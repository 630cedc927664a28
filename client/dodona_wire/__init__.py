"""Types, rows, messages and connections that the clients and servers of Dodona share.

`types` and `errors` have the vocabulary. `rows` has the rows of tables. `messages` has requests and
answers. `cores` has the parts that all sans-IO cores use. `net` has connections, and what a process
needs for them.
Must not import: any client, any server.
"""
