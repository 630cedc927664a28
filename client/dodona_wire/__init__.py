"""What clients and servers of Dodona share: words, rows, messages, and how these travel.

`types` and `errors` are the words. `rows` is what a table's rows are, `messages` is what is asked
and answered, `cores` is what every sans-IO core is made of, `net` is connections and what a process
needs for them. Must not import: any client, any server.
"""
