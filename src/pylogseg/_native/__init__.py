"""The compiled modules, each with its stub; `kernels/README.md` lists the parts in Cython and in C."""
