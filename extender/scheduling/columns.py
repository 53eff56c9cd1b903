"""The judgements of one pod shape by slot of the node: a call about thousands of nodes is a few array operations.

Rules of this file
- A column has, for each slot, the class that was judged and the number (code) of its judgement. It is used only where
  that class is still the node's, so a column never becomes wrong, and no change has to be passed on to it.
- Different judgements are few. What follows from one (its answer, its score) is computed once for each of them.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.kubelet.verdict import Certainty
from extender.scheduling.judgement import Judgement

UNJUDGED: Final = -1
"""The code of a slot without a judgement."""
_MANY: Final = 1000
_MAX_SCALES: Final = 8
"""For how many scales the scores are kept."""

Int64s = NDArray[np.int64]
Answer = tuple[str | None, Certainty]
"""The text of the refusal, None of a feasible node; and the certainty."""
S = TypeVar("S", bound=Hashable)


class Kinds:
    """The different judgements of one pod shape. Their codes are 0, 1, 2, …, and never change."""

    def __init__(self) -> None:
        self.judgements: Final[list[Judgement]] = []
        self.answers: Final[list[Answer]] = []
        """The different answers of filter."""
        self.texts: Final[list[str | None]] = []
        """The different texts of answers."""
        self._code_of: Final[dict[Judgement, int]] = {}
        self._answer_numbers: Final[dict[Answer, int]] = {}
        self._answer_of = np.zeros(8, np.int64)
        self._text_of = np.zeros(0, np.int64)
        self._scores: Final[dict[Hashable, NDArray[np.uint8]]] = {}

    def code(self, judgement: Judgement) -> int:
        """The code of a judgement."""
        code = self._code_of.get(judgement)
        if code is None:
            code = self._code_of[judgement] = len(self.judgements)
            self.judgements.append(judgement)
            text = None if judgement.refusal is None else judgement.refusal.text
            answer = (text, judgement.certainty)
            number = self._answer_numbers.setdefault(answer, len(self.answers))
            if number == len(self.answers):
                self.answers.append(answer)
                if text not in self.texts:
                    self.texts.append(text)
                self._text_of = np.append(self._text_of, self.texts.index(text))
            if code == len(self._answer_of):
                self._answer_of = np.resize(self._answer_of, 2 * code)
            self._answer_of[code] = number
        return code

    def answers_of(self, codes: Int64s) -> Int64s:
        """The number in `answers` of each code."""
        return self._answer_of[codes]

    def texts_of(self, numbers: Int64s) -> Int64s:
        """The number in `texts` of each number in `answers`."""
        return self._text_of[numbers]

    def scores_of(
        self,
        codes: Int64s,
        scale_of: Callable[[Iterable[Judgement]], S],
        score: Callable[[Judgement, S], int],
    ) -> NDArray[np.uint8]:
        """The score of each node of a request. *scale_of* makes a scale of its judgements; *score* applies it to one.

        Both are always the same functions.
        """
        present = np.flatnonzero(np.bincount(codes)).tolist()
        scale = scale_of(map(self.judgements.__getitem__, present))
        known = self._scores.get(scale)
        if known is None or len(known) < len(self.judgements):
            before = [] if known is None else known.tolist()
            # a request with these nodes has a scale that fits them; others may be beyond it
            new = [max(0, min(score(each, scale), 255)) for each in self.judgements[len(before) :]]
            known = np.array(before + new, np.uint8)
            self._scores.pop(scale, None)
            if len(self._scores) >= _MAX_SCALES:
                del self._scores[next(iter(self._scores))]
            self._scores[scale] = known
        return known[codes]


class Column:
    """The judgements of one pod shape by slot; empty at first."""

    def __init__(self) -> None:
        self.kinds = Kinds()
        self._class_ids = np.zeros(0, np.int64)
        self._codes = np.zeros(0, np.int64)

    def codes(self, slots: Int64s, ids: Int64s, size: int, judgements: Mapping[int, Judgement]) -> Int64s:
        """The code of the judgement of each node; `UNJUDGED` where *judgements* has none.

        *slots*, *ids*: slot and class id of each node. *size*: how many slots arrays have. *judgements*: the judgement
        of each class id.
        """
        if len(self._class_ids) != size or len(self.kinds.judgements) > 2 * size + _MANY:
            self.kinds = Kinds()
            self._class_ids = np.full(size, np.iinfo(np.int64).max, np.int64)
            self._codes = np.full(size, UNJUDGED, np.int64)
        codes = self._codes[slots]
        changed = np.flatnonzero(self._class_ids[slots] != ids)
        if len(changed):
            if not judgements:
                codes[changed] = UNJUDGED
                return codes
            code, found = self.kinds.code, map(judgements.get, ids[changed].tolist())
            codes[changed] = [UNJUDGED if each is None else code(each) for each in found]
            judged = changed[codes[changed] != UNJUDGED]
            self._class_ids[slots[judged]], self._codes[slots[judged]] = ids[judged], codes[judged]
        return codes

    def put(self, slots: Int64s, ids: Int64s, judgement: Judgement) -> None:
        """Set the judgement of nodes that are alike, after `codes` with the same size."""
        self._class_ids[slots], self._codes[slots] = ids, self.kinds.code(judgement)
