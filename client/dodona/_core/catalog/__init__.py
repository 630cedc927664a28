"""Tables, the tree that contains them, and the master transactions on the tree."""
