"""Finds pitfalls in configurations of kube-scheduler, kubelets and our own components before they are deployed.

Rules of this package
- Pure: documents in, findings out. Everything else that a rule needs to know about us comes in a `Context`.
- Every finding names a rule of the catalogue, a place, the consequence, and what to do.
- A rule reports nothing where it cannot know: a linter with false alarms is switched off.

Sources: kube-scheduler's extender client and its validation, the kubelet's managers, and known incidents.
"""

from extender.lint.catalogue import RULES, Finding, Rule, Severity
from extender.lint.context import Context
from extender.lint.run import lint

__all__ = ["RULES", "Context", "Finding", "Rule", "Severity", "lint"]
