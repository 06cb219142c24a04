"""Run directories: statistics of a run, writing, reading, finding finished runs."""
