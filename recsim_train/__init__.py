"""Predict, run and compare distributed training of recommendation models on CPU clusters."""

__version__ = "0.1.0"
