"""Judges of a recorded history. They know nothing of how Dodona works inside."""
