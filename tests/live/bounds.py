"""What every load that is scheduled with the extender must show: a scene in which nothing happens must fail."""

import math
from collections import Counter
from typing import Final

from tests.live.load import OTHERWISE, PREDICTED, Round, counted, show_audit
from tests.live.report import Findings
from tests.live.whole.comparing import OTHER, SAME, compared

ADMITTED: Final = 0.9
"""Of the pods of a load, kubelets admit at least this share. The others end first, or their node does."""
NOT_PLACED: Final = 0.05
"""Near capacity at most this share of the pods waits longer than the feeder does."""
REAL_OTHERWISE: Final = 0.05
"""With real kubelets at most this share of the pods, and of the containers, gets other CPUs than predicted. A kubelet
releases what an ended pod held when it admits the next one, and may know of the end before its status says so."""
UNFORESEEN: Final = 0.03
"""At most this share may be refused by the first list of a kubelet that nobody could know to have stopped."""


def show_load(
    findings: Findings,
    found: Round,
    audit: Counter[str],
    *,
    whose: str = "",
    admitted: float = ADMITTED,
    not_placed: float = NOT_PLACED,
    refused: float = 0.0,
    excuses_unforeseen: bool = False,
) -> None:
    """The rows of a load.

    *audit*: the counts of /v1/audit. *whose*: added to the names of the rows. *admitted*, *not_placed*, *refused*:
    shares of the pods. *excuses_unforeseen*: pods that were bound before a report could say that their kubelet had
    stopped are bounded by `UNFORESEEN`, and no other pod may be refused.
    """
    pods = found.fed.created
    least, most = math.ceil(admitted * pods), math.floor(not_placed * pods)
    findings.must(f"admitted{whose}", found.tally.admitted, f"at least {least}", ok=found.tally.admitted >= least > 0)
    unforeseen, total = len(found.refused_unforeseen), found.tally.refused.total()
    if excuses_unforeseen:
        allowed = math.floor(UNFORESEEN * pods)
        findings.must(f"refused after binding{whose}", found.refused, f"at most {allowed}", ok=total <= allowed)
        what = "of these bound later than 1 s after their kubelet stopped"
        findings.must(f"{what}{whose}", total - unforeseen, "0", ok=total <= unforeseen)
    else:
        allowed = math.floor(refused * pods)
        bound = f"at most {allowed}" if allowed else "0"
        findings.must(f"refused after binding{whose}", found.refused, bound, ok=total <= allowed)
    late, patience = found.fed.given_up - len(found.refused_by_all), found.fed.patience_seconds
    what = f"not placed within {patience:.0f} s; seconds of the others, median and highest{whose}"
    if found.alone:
        findings.show(f"not placed, and refused by every kubelet{whose}", len(found.refused_by_all))
    findings.must(what, f"{late}; {found.bind_times}", f"at most {most}", ok=late <= most)
    show_audit(findings, audit, pods, share_otherwise=REAL_OTHERWISE if found.given else OTHERWISE)
    if found.given:
        show_given(findings, found)
    findings.details += [*found.tally.refusals, *_not_placed(found)]


def _not_placed(found: Round) -> list[str]:
    """A line for each pod that was never bound: what kube-scheduler said, and what each kubelet does with it."""
    lines = []
    for name, said in found.fed.said.items():
        told = (f"{node} {reason or 'admits it'}" for node, reason in found.alone.get(name, {}).items())
        lines.append(f"{said} Alone: {', '.join(told) or 'not tried'}.")
    return lines


def show_given(findings: Findings, found: Round) -> None:
    """What the runtime was told to give to containers, against the predictions written into the pods."""
    counts, lines = compared(found.entries, found.given)
    total = counts.total()
    least, most = math.ceil(PREDICTED * total), math.floor(REAL_OTHERWISE * total)
    what, bound = "containers, by what the runtime was told", f"at least {least} as predicted, at most {most} otherwise"
    ok = counts[SAME] >= least > 0 and counts[OTHER] <= most
    findings.must(what, counted(counts), bound, ok=ok)
    refused = found.refused_reports
    findings.must("reports of kubelets that the extender refused", len(refused), "0", ok=not refused)
    findings.details += [*lines, *refused]


def show_without(findings: Findings, found: Round) -> None:
    """The row of the same load without the extender: where nothing is refused, the load was no trial."""
    total = found.tally.refused.total()
    shown = f"{found.tally.admitted}; {found.refused}; {found.fed.given_up}; {found.bind_times}"
    what = "without us: admitted; refused; not placed within 45 s; seconds of the others, median and highest"
    findings.must(what, shown, "at least 1 refused", ok=total > 0)


def show_binds(findings: Findings, binds: Counter[str], found: Round) -> None:
    """Bind calls by outcome. The extender must have bound every pod: none was bound by another program.

    A call whose outcome was unknown or a conflict may have bound its pod.
    """
    bound = len(found.seconds_to_bind)
    by_us = sum(binds[outcome] for outcome in ("bound", "unsure", "conflict"))
    findings.must("bind calls by outcome", counted(binds), f"{bound} or more bound", ok=by_us >= bound > 0)


def show_spared(findings: Findings, binds: Counter[str], failure: str, share: float) -> None:
    """At most this share of the bind calls may have failed for this reason."""
    most = math.floor(share * binds.total())
    findings.must(f"bind calls refused: {failure}", binds[failure], f"at most {most}", ok=binds[failure] <= most)
