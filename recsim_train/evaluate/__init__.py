"""What is a design worth, and how much simulation may the answer cost?

Here belong cases (a job on a cluster, changed by overrides), the table of levels at which they are
simulated, the evaluator that simulates many, and what a prediction adds to its simulation: bounds
before it, what more of an input would change, the interval from calibration. Nothing here may
change what a simulation comes to, and nothing else makes one.
"""
