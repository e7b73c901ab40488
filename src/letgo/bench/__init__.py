"""How fast: our paths, the plain eager ones and a `diffusers` scheduler loop, in one run on one machine."""
