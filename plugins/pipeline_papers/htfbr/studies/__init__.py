"""The rival of the paper, and epochs of which several devices share the points."""
