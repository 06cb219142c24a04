"""Strategies: training algorithms, each as the effects that its loops ask for.

Here belong effects, operations, parts and the driver that checks both worlds' loops. An algorithm
never looks into a value and knows neither tensors nor seconds: it imports the standard library and
this room only.
"""
