"""Shards of embeddings and dense parameters: what they hold, what may be asked, and both sides of
asking.

Here belong requests, their answers, which shard has which ids, caches of rows in front of shards.
How bytes come to another process is `recsim_train.executor.link`, what kernels compute
`recsim_train.executor.net`.
"""
