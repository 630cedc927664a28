"""Expressions of YTsaurus's query language: their tokens, their grammar and their values. Pure.

Computed key columns and the queries of YTsaurus's API are made of them.
Must not import: rows and messages.
"""
