"""Real clusters under attack: processes killed and paused, connections cut, and what holds."""
