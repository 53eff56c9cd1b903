"""The kubelet's managers and the admission of pods, as pure functions over values.

Rules of this package
- Standard library only. No clock, no environment, no log, no I/O, no randomness.
- Arguments are never mutated. State is a value; an allocation returns a new one.
- A refused pod is a value (`verdict.Rejected`). A configuration with which no kubelet starts is a
  `config.KubeletConfigError`.
- Every difference between kubelet versions is a named switch in `rules`, and nowhere else.
- Sets of CPUs and of NUMA nodes are plain ints (bit i = id i). `sets` parses, checks and prints them at the boundaries.
"""
