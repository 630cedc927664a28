"""Code that judges a recorded history. It does not know how Dodona works inside."""
