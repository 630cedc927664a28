"""Real clusters under attack: killed and paused processes, cut links, and what holds then."""
