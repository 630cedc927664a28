"""Dodona's tablet node: one cell, its log, and the tablets mounted in it."""
