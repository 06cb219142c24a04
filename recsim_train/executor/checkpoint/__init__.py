"""Checkpoints of a run that goes on: what each process keeps, when all of them do, and how it comes
back."""
