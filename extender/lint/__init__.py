"""What will bite, in configurations of kube-scheduler, kubelets and our own parts, before it does.

Laws
- Pure: documents in, findings out. Everything else a rule needs to know of us comes in a `Context`.
- Every finding names a rule of the catalogue, a place, why it bites, and what to do.
- A rule is silent where it cannot know: a linter that cries wolf is switched off.

Sources: kube-scheduler's extender client and its validation, the kubelet's managers; what bit others.
"""

from extender.lint.catalogue import RULES, Rule, Severity
from extender.lint.context import Context
from extender.lint.finding import Finding
from extender.lint.run import lint

__all__ = ["RULES", "Context", "Finding", "Rule", "Severity", "lint"]
