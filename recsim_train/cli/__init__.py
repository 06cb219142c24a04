"""The commands: each parses its words, makes a call, prints what it gives back.

Here belong options, exit codes, progress and messages. A command has no logic of its own: what it
does can be had from Python, by `recsim_train.calls` or by a room below.
"""
