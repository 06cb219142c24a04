"""Why a simulation comes to what it does, and how far it can be trusted.

Here belong bounds and the critical path, and the sentences about what a prediction rests on. All of
it reads a simulation that has run: nothing here may change what it comes to.
"""
