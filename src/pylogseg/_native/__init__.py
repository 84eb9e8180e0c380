"""The compiled modules, each with its stub; `kernels/README.md` says what is written in Cython and what in C."""
