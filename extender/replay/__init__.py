"""What the kubelet's admission and the NRI policy give together: possible states, alignment, demands, counts.

Rules of this package
- As `extender.kubelet`: standard library only, pure, and arguments are never mutated.
"""
