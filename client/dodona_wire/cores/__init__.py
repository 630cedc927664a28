"""What sans-IO cores are made of: what they ask their shells to do, and what they count. No I/O."""
