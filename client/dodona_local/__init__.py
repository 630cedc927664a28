"""Run Dodona on one machine: its launcher, command line, demonstration and embedded database.

Owns: everything that needs no second machine. Imports nothing here, so that the guard process of
every server (`dodona_local.child`) starts fast.
"""
