"""Validations: predictions of many configurations, held to repeated measurements of each.

Here belong their folder, how one is made, what follows from it (errors, order, coverage, gates) and
its page. The section that experiments write is `recsim_train.config.experiment`; what makes one run
or shows one prediction is in session and report, which know nothing of validations.
"""
