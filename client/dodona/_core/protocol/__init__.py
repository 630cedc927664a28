"""What all protocols of a client share: steps, routes, limits, retries, checks of arguments."""
