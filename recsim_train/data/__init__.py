"""Data: batches of examples, from a file or from the generator, and what is counted in them.

Here belong sources of rows (one module for each format of files), the stream that deals their
batches to loops, the generator, and counts of a stream's ids. Everything is numpy: tensors are
made by the executor, times by the simulator, and which formats there are says
`recsim_train.config.formats`.
"""
