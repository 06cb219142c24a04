"""Checkpoints on disk: what a run keeps to go on from, and the model that comes out of it.

One is a folder of safetensors files, by logical table and parameters, whoever held what; and a
manifest, written last, that makes it complete. No torch.
"""
