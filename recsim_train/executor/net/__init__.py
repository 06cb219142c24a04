"""The net that is trained: its model, whole or cut over hosts, the kernels that compute with it and
with embedding rows, what optimizers and compression keep.

Here belongs what an operation does with tensors. Who asks for it, from where and over what wire is
elsewhere: no threads, no sockets, no processes.
"""
