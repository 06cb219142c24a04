"""What happened when: spans, the same in both worlds."""
