"""Predictions against measurements: pairing, why they differ, tables, figures, one page."""
