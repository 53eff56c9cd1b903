"""CEL in device selectors: compiled once, evaluated for each device.

Rules of this file
- Anything that is not known makes the result not known, never true or false.
- `&&` and `||` absorb an error of one side if the other side decides. So do `all` and `exists`.
- Static types are followed as far as they decide whether the API server takes an expression: what `device` has, what a
  function returns, and what is compared. Attributes are of any type.
- An evaluation has `MAX_STEPS` steps. The API server's limit is about fifty times higher, so an expression that needs
  more is not known.

Source: k8s.io/dynamic-resource-allocation/cel/compile.go, and the language definition of CEL.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from extender.dra.cel_evaluation import (
    NUMERIC,
    Evaluate,
    Frame,
    arithmetic,
    as_bool,
    equal,
    has_field,
    is_in,
    is_included,
    item_at,
    list_of,
    logical,
    map_of,
    negative,
    optional_at,
    ordered,
    pattern_matches,
    quantified,
    with_name,
)
from extender.dra.cel_functions import ANY, GLOBALS, MEMBERS, TYPE_NAMES, call
from extender.dra.cel_syntax import (
    INDEX,
    OPTIONAL_INDEX,
    OPTIONAL_SELECT,
    CelCall,
    ListOf,
    Literal,
    MapOf,
    Name,
    Node,
    Select,
    depth_of,
    parsed,
)
from extender.dra.cel_values import CelOptional, CelType, Domains, kind_of, semver
from extender.dra.errors import CelCompileError, CelError, NotReplayedError
from extender.dra.objects import SliceDevice
from extender.dra.pools import PooledDevice
from extender.dra.quantity import Quantity
from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError

MAX_STEPS: Final = 20_000
MAX_TREE: Final = 80
"""Levels of an expression: each takes up to three of Python's calls."""


class Static(NamedTuple):
    """A type that is known before the evaluation. `item`: the type of a map's values."""

    kind: type
    item: "Static | None" = None


class _DeviceVariable(NamedTuple):
    """The variable `device`."""

    driver: str
    attributes: Domains
    capacity: Domains
    allowMultipleAllocations: bool  # noqa: N815 - the name in expressions


_UNTYPED: Final = Static(ANY)
_BOOL: Final = Static(bool)
_FIELDS: Final = {
    "driver": Static(str),
    "attributes": Static(dict, Static(dict, _UNTYPED)),
    "capacity": Static(dict, Static(dict, Static(Quantity))),
    "allowMultipleAllocations": _BOOL,
}
_ORDERED: Final = {"_<_": (-1,), "_<=_": (-1, 0), "_>_": (1,), "_>=_": (0, 1)}


class Selector(NamedTuple):
    """A compiled expression."""

    evaluate: Evaluate

    def holds(self, driver: str, device: SliceDevice, budget: Budget, *, with_lists: bool = False) -> bool:
        """Whether the expression holds for the device. Its steps are charged to *budget* as well.

        Raises: CelError: the expression fails.
            NotReplayedError: the result is not known.
            BudgetError: *budget* is used up.
        """
        own = Budget(MAX_STEPS)
        try:
            found = self.evaluate(Frame({"device": _variable(driver, device, with_lists)}, own))
        except BudgetError:
            raise NotReplayedError(f"CEL: more than {MAX_STEPS} steps") from None
        budget.spend(1 + int(own.used))
        if not isinstance(found, bool):
            raise CelError("the result is not a bool")
        return found


@lru_cache(maxsize=64)  # a compiled one can take 600 kB
def selector(expression: str, *, with_lists: bool = False) -> Selector:
    """Compile an expression. *with_lists*: DRAListTypeAttributes is on.

    Raises:
        CelCompileError: the API server would refuse it.
        NotReplayedError: it is not known.
    """
    tree = parsed(expression)
    if depth_of(tree) > MAX_TREE:
        raise NotReplayedError(f"CEL: a tree of more than {MAX_TREE} levels")
    static, evaluate = _Compiler({"device": Static(_DeviceVariable)}, with_lists=with_lists).compile(tree)
    if static.kind not in (bool, ANY):
        raise CelCompileError(f"must evaluate to bool, not {static.kind.__name__}")
    return Selector(evaluate)


def match(expression: str, candidate: PooledDevice, budget: Budget, *, with_lists: bool = False) -> bool:
    """Whether the expression holds for the device. Raises as `selector` and `Selector.holds`."""
    compiled = selector(expression, with_lists=with_lists)
    return compiled.holds(candidate.id[0], candidate.device, budget, with_lists=with_lists)


@lru_cache(maxsize=4096)
def _variable(driver: str, device: SliceDevice, with_lists: bool) -> _DeviceVariable:  # noqa: FBT001 - part of the key
    attributes, capacity = Domains(), Domains()
    for name, attribute in device.attributes.items():
        if not attribute.kind or (attribute.is_list and not with_lists):
            raise CelError(f"attribute {name}: unsupported attribute value")
        values = attribute.value if attribute.is_list else (attribute.value,)
        if attribute.kind.startswith("version"):
            values = tuple(semver(each) for each in values)
            if None in values:
                raise CelError(f"attribute {name}: not a semantic version")
        domain, own = _split_name(name, driver)
        attributes.setdefault(domain, {})[own] = values if attribute.is_list else values[0]
    for name, amount in device.capacity.items():
        domain, own = _split_name(name, driver)
        capacity.setdefault(domain, {})[own] = amount.value
    return _DeviceVariable(driver, attributes, capacity, device.is_shared)


def _split_name(name: str, driver: str) -> tuple[str, str]:
    domain, slash, own = name.partition("/")
    return (domain, own) if slash else (driver, name)


class _Compiler:
    """Compiles in one scope. *names*: the variables with their types."""

    def __init__(self, names: Mapping[str, Static], *, with_lists: bool) -> None:
        self._names = names
        self._with_lists = with_lists

    def compile(self, node: Node) -> tuple[Static, Evaluate]:
        match node:
            case Literal(value):
                return Static(kind_of(value)), lambda _: value
            case Name(name):
                return self._variable(name)
            case Select():
                return self._select(node)
            case ListOf(items):
                parts = [self.compile(item)[1] for item in items]
                return Static(tuple), lambda frame: list_of(frame, parts)
            case MapOf(entries):
                pairs = [(self.compile(key)[1], self.compile(value)[1]) for key, value in entries]
                return Static(dict), lambda frame: map_of(frame, pairs)
            case CelCall():
                return self._call(node)

    def _variable(self, name: str) -> tuple[Static, Evaluate]:
        if name in self._names:
            return self._names[name], lambda frame: frame.names[name]
        if name in TYPE_NAMES:
            return Static(CelType), lambda _: TYPE_NAMES[name]
        raise NotReplayedError(f"CEL: {name[:64]}")

    def _select(self, node: Select) -> tuple[Static, Evaluate]:
        static, operand = self.compile(node.operand)
        field = node.field
        if static.kind is _DeviceVariable:
            if field not in _FIELDS:
                raise CelCompileError(f"undefined field {field[:64]!r}")
            return _FIELDS[field], lambda frame: getattr(operand(frame), field)
        if static.kind not in (dict, ANY):
            raise CelCompileError(f"a {static.kind.__name__} has no field")
        return static.item or _UNTYPED, lambda frame: item_at(operand(frame), field, frame)

    def _call(self, node: CelCall) -> tuple[Static, Evaluate]:
        target = node.target
        if isinstance(target, Name) and target.name not in self._names:
            if (target.name, node.function) == ("cel", "bind"):
                return self._bind(node)
            raise NotReplayedError(f"CEL: {target.name[:64]}.{node.function[:64]}")
        if target is None:
            if node.function == "has":
                return self._has(node)
            special = self._operator(node)
            return special or self._function(node.function, node.args, GLOBALS)
        if node.function in ("all", "exists"):
            return self._comprehension(node, target)
        if node.function == "matches":
            text, pattern = self._two(target, *node.args)
            return _BOOL, lambda frame: pattern_matches(frame, text[1](frame), pattern[1](frame))
        if node.function == "includes" and self._with_lists:
            value, wanted = self._two(target, *node.args)
            return _BOOL, lambda frame: is_included(frame, value[1](frame), wanted[1](frame))
        return self._function(node.function, (target, *node.args), MEMBERS)

    def _two(self, *nodes: Node) -> tuple[tuple[Static, Evaluate], tuple[Static, Evaluate]]:
        if len(nodes) != 2:
            raise CelCompileError("found no matching overload")
        return self.compile(nodes[0]), self.compile(nodes[1])

    def _function(self, name: str, args: tuple[Node, ...], known: Mapping[str, Any]) -> tuple[Static, Evaluate]:
        if name not in known:
            raise NotReplayedError(f"CEL: the function {name[:64]}")
        result, overloads = known[name]
        compiled = [self.compile(arg) for arg in args]
        kinds = [static.kind for static, _ in compiled]
        fits = (
            len(wanted) == len(kinds) and all(ANY in (a, b) or a is b for a, b in zip(wanted, kinds, strict=True))
            for wanted in overloads
        )
        if not any(fits):
            raise NotReplayedError(f"CEL: {name[:64]} with these arguments")
        parts = [evaluate for _, evaluate in compiled]
        return Static(result), lambda frame: call(overloads, tuple(part(frame) for part in parts), frame.budget)

    def _operator(self, node: CelCall) -> tuple[Static, Evaluate] | None:
        name, args = node.function, node.args
        if name in ("_&&_", "_||_"):
            left, right = (self._condition(arg) for arg in args)
            return _BOOL, lambda frame: logical(frame, left, right, decides=name == "_||_")
        if name == "!_":
            operand = self._condition(args[0])
            return _BOOL, lambda frame: not as_bool(operand(frame))
        if name == "_?_:_":
            condition, (then, yes), (other, no) = self._condition(args[0]), *self._two(*args[1:])
            static = then if then == other else _UNTYPED
            return static, lambda frame: yes(frame) if as_bool(condition(frame)) else no(frame)
        if name in ("_==_", "_!=_", "@in", *_ORDERED):
            return _BOOL, self._comparison(name, args)
        if name in (INDEX, OPTIONAL_INDEX, OPTIONAL_SELECT):
            return self._index(name, args)
        if name == "-_":
            static, operand = self.compile(args[0])
            return static, lambda frame: negative(operand(frame))
        if name in ("_+_", "_-_", "_*_", "_/_", "_%_"):
            (left_type, one), (right_type, two) = self._two(*args)
            if ANY not in (left_type.kind, right_type.kind) and left_type.kind is not right_type.kind:
                raise CelCompileError("found no matching overload")
            static = left_type if right_type.kind is ANY or left_type == right_type else _UNTYPED
            return static, lambda frame: arithmetic(frame, name, one(frame), two(frame))
        return None

    def _condition(self, node: Node) -> Evaluate:
        static, evaluate = self.compile(node)
        if static.kind not in (bool, ANY):
            raise CelCompileError(f"expected type 'bool' but found {static.kind.__name__}")
        return evaluate

    def _comparison(self, name: str, args: tuple[Node, ...]) -> Evaluate:
        (left_type, left), (right_type, right) = self._two(*args)
        kinds = {left_type.kind, right_type.kind}
        if name == "@in":
            if right_type.kind not in (tuple, dict, ANY):
                raise CelCompileError("found no matching overload")
            return lambda frame: is_in(frame, left(frame), right(frame))
        is_mixed = ANY not in kinds and len(kinds) > 1
        if is_mixed and (name not in _ORDERED or not kinds <= {*NUMERIC}):
            raise CelCompileError("found no matching overload")
        if name in _ORDERED:
            wanted = _ORDERED[name]
            return lambda frame: ordered(frame, left(frame), right(frame)) in wanted
        return lambda frame: equal(frame, left(frame), right(frame)) == (name == "_==_")

    def _index(self, name: str, args: tuple[Node, ...]) -> tuple[Static, Evaluate]:
        (static, operand), (_, key) = self._two(*args)
        if static.kind not in (dict, tuple, CelOptional, ANY):
            raise CelCompileError("found no matching overload")
        if name == INDEX:
            return static.item or _UNTYPED, lambda frame: item_at(operand(frame), key(frame), frame)
        if static == _FIELDS["attributes"] or static == _FIELDS["capacity"]:
            raise NotReplayedError("CEL: an optional domain")
        return Static(CelOptional), lambda frame: optional_at(operand(frame), key(frame), frame)

    def _has(self, node: CelCall) -> tuple[Static, Evaluate]:
        (argument,) = node.args if len(node.args) == 1 else (None,)
        if not isinstance(argument, Select):
            raise CelCompileError("invalid argument to has() macro")
        static, operand = self.compile(argument.operand)
        field = argument.field
        if static.kind is not dict or static.item is None or static.item.kind is dict:
            raise NotReplayedError("CEL: has() of this")
        return _BOOL, lambda frame: has_field(operand(frame), field)

    def _bind(self, node: CelCall) -> tuple[Static, Evaluate]:
        if len(node.args) != 3 or not isinstance(node.args[0], Name):
            raise CelCompileError("cel.bind() needs a name")
        name = node.args[0].name
        static, value = self.compile(node.args[1])
        inner, body = self._within(name, static).compile(node.args[2])
        return inner, lambda frame: body(with_name(frame, name, value(frame)))

    def _within(self, name: str, static: Static) -> "_Compiler":
        return _Compiler({**self._names, name: static}, with_lists=self._with_lists)

    def _comprehension(self, node: CelCall, target: Node) -> tuple[Static, Evaluate]:
        name, args = node.function, node.args
        if len(args) != 2 or not isinstance(args[0], Name):
            raise NotReplayedError(f"CEL: {name} with {len(args)} arguments")
        (static, items), variable = self.compile(target), args[0].name
        if static.kind not in (tuple, dict, ANY):
            raise CelCompileError("expression cannot be range of a comprehension")
        item = Static(str) if static.item is not None else _UNTYPED
        body = self._within(variable, item)._condition(args[1])  # noqa: SLF001 - of its class
        return _BOOL, lambda frame: quantified(frame, variable, items(frame), body, decides=name == "exists")
