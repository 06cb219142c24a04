"""Config: what users write, read and checked.

Here belong the settings of experiments and cluster profiles, their units, presets, overrides and
checks, the sentences about mistakes, and the errors of the whole package. What settings mean is
said where they are used: this room imports no other one.
"""
