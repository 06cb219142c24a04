"""Records of what happened when, the same in both worlds."""
