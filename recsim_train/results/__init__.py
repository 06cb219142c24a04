"""What runs leave behind, and the figures that follow from one run.

Here belong run directories and the folders around them, statistics and the summary of a run, its
row in a table, the interval of a prediction, and what is known of the machine. What several runs
show together is in report, sweep or validation; how a run is made, in session.
"""
