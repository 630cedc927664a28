"""Tables, the tree that they are in, and the master transactions on it."""
