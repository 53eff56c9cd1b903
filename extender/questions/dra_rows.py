"""The devices of DRA drivers that pods get on nodes one after another, for those who plan places by shapes of pods.

Rules of this file
- A row is the pods that come to a node, in order. What they get is what kube-scheduler would allocate: `taken_by`.
- Where it is not known what a pod of a row gets, its claims are left out.
- One object serves one plan: the nodes are read once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Final, TypeAlias

from extender.cluster.node_class import UNKNOWN
from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError
from extender.questions.dra import ClaimForecast, shape_with, taken_by, with_forecast, without_claims_of
from extender.questions.node_context import NOTHING_KNOWN, LookUp, Subject
from extender.replay.pod import Pod
from extender.scheduling.judge import LOOP_STEPS
from extender.scheduling.pod_shape import PodShape

STEPS_OF_A_SEARCH: Final = 500
"""What a search for devices costs. The first one costs more than the event loop may do: it is made beside it."""
Row: TypeAlias = tuple[PodShape, ...]


def asked_by(shape: PodShape) -> object:
    """Equal for pods of one shape whose claims ask for the same."""
    pairs = zip_longest(shape.pod.claims, shape.pod.templates, fillvalue="")
    return shape.key, tuple(template or claim for claim, template in pairs)


def may_ask(shape: PodShape) -> bool:
    """Whether a pod of the shape may need devices of DRA drivers."""
    return shape.pod.has_claims or shape.pod.wants_devices


@dataclass(slots=True)
class RowsWithDevices:
    """What rows of pods get. *leaving*: pods whose claims count as free: they are in the rows themselves.

    Without a forecast claims are left out.
    """

    forecast: ClaimForecast | None = None
    look_up: LookUp = lambda _name: NOTHING_KNOWN
    leaving: Sequence[Pod] = ()
    _known: dict[tuple[str, Row], tuple[Subject, Row] | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        make_forecast: Callable[[], ClaimForecast | None],
        look_up: LookUp,
        shapes: Iterable[PodShape],
        leaving: Sequence[Pod],
    ) -> "RowsWithDevices":
        """For rows of *shapes*. Without claims there is no forecast."""
        return cls(make_forecast() if any(map(may_ask, shapes)) else None, look_up, leaving)

    def short_after(self, shape: PodShape, rows: Mapping[str, Sequence[PodShape]], budget: Budget) -> frozenset[str]:
        """The nodes where too few devices are left for the node's row once a pod of the shape has its own.

        Not those where there are too few for one of them alone. Nodes for which *budget* does not suffice are left out.
        Claims of all these pods count as free.
        """
        found, freed = set[str](), replace(self, leaving=[e.pod for e in chain([shape], *rows.values())], _known={})
        with suppress(BudgetError):
            for name, row in rows.items():
                apart = freed.given(name, [shape], budget), freed.given(name, row, budget)
                if None not in apart and freed.given(name, [shape, *row], budget) is None:
                    found.add(name)
        return frozenset(found)

    def given(self, name: str, shapes: Iterable[PodShape], budget: Budget) -> Row | None:
        """The pods of a row on a node, with the devices of their claims; None: there are too few for one of them.

        Raises:
            BudgetError: it takes too many steps.
        """
        row = tuple(shapes)
        if self.forecast is None or not any(map(may_ask, row)):
            return row
        found = self._found(self.forecast, name, row, budget)
        return None if found is None else found[1]

    def _found(self, forecast: ClaimForecast, name: str, row: Row, budget: Budget) -> tuple[Subject, Row] | None:
        """The node after a row, and the row with devices."""
        key = name, row  # shapes are equal only if they are the same object
        if key not in self._known:
            budget.spend(STEPS_OF_A_SEARCH if self._known else LOOP_STEPS + 1)
            self._known[key] = self._one_more(forecast, name, row, budget)
        return self._known[key]

    def _one_more(self, forecast: ClaimForecast, name: str, row: Row, budget: Budget) -> tuple[Subject, Row] | None:
        if not row:
            node = Subject(name=name, node_class=UNKNOWN, states=(), around=self.look_up(name))
            (node,) = with_forecast(forecast, (), [node])
            return replace(node, around=without_claims_of(self.leaving, node.around)), ()
        before, shape = self._found(forecast, name, row[:-1], budget), row[-1]
        if before is None:
            return None
        subject, shapes = before
        if (taken := taken_by(shape.pod, subject)) is None:
            return subject, (*shapes, shape)
        if taken.around is None:
            return None
        return replace(subject, around=taken.around), (*shapes, shape_with(shape, taken.devices))
