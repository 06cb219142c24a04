"""Placement: which state and which loop lives where."""
