"""Records of a run, in the same form from both worlds: iterations, spans, CPU ledger, facts.

Here belong what is recorded and how it is written for viewers. What follows from records is for
`recsim_train.results`, how they look for the report.
"""
