"""Strategies: distributed training algorithms written once, for every world."""
