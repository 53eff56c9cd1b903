"""The coarse replay: the kubelet's admission on counts for each NUMA node, without CPU ids and device ids.

Most admissions depend on how much is free on each NUMA node, and not on which CPUs are free. The coarse replay decides
these from a few integers, in a small part of the time of the full replay. It serves filter and prioritize, which look
at every node for each new pod shape.

Rules of this package
- An answer of the coarse replay is the answer of `admission.admit`. The tests compare both on random nodes and on every
  recorded admission.
- Where ids decide, the answer is None, and the caller runs the full replay. None is always safe.
- Standard library only and pure, as the rest of `extender.replay`.
"""
