"""Predictions beside measurements: paired, explained, and put into words, tables and figures.

Here belong comparisons of runs, why they differ, what must be known before they are trusted, and
the documents that a terminal, Markdown and one HTML page show. A report reads run directories only:
it makes no run, and knows neither simulator nor executor, sweeps nor validations.
"""
