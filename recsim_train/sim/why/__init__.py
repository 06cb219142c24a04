"""Why a prediction is what it is, and how far it can be trusted.

Here belong bounds and the critical path, what more of an input would change, the interval from
calibration, and the sentences about what a prediction rests on. All of it reads simulations, or
asks for further ones: nothing here may change what a simulation comes to.
"""
