"""Messages of loops: requests to shards, collectives of groups, batches from readers.

Here belongs what an effect that leaves its loop costs at both ends and on the wire, as sizes and
priced work. Which effect goes where is said in `recsim_train.sim.perform`; how work and bytes share
hosts must not be known here.
"""
