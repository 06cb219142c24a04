"""Max-min fair sharing of resources, solved in compiled code: `solver` is the door. No SimPy."""
