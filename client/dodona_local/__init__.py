"""Dodona on one machine: the launcher, the command line, the demonstration, the embedded database.

Owns: everything that needs no second machine. Imports nothing here, so that the guard process of
every server (`dodona_local.child`) starts light.
"""
