"""The client's sans-IO half, and the vocabulary that servers share with it."""
