"""The syntax of CEL: from a text to a tree.

Rules of this file
- A text that is not CEL is a compile error. Syntax that is CEL and not read here is not known.
- Operators are calls with names such as `_&&_`. Macros are calls as well; the evaluation of the tree knows them.

Source: the language definition of CEL (cel-spec/doc/langdef.md).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from extender.dra.errors import CelCompileError, NotReplayedError

MAX_TOKENS: Final = 2_000
MAX_NESTING: Final = 40
OPTIONAL_SELECT, OPTIONAL_INDEX, INDEX = "_?._", "_[?_]", "_[_]"


class Uint(int):
    """An unsigned integer. `1u` equals `1` and is of another type."""


class Literal(NamedTuple):
    """A value that is written out."""

    value: object


class Name(NamedTuple):
    """A variable."""

    name: str


class Select(NamedTuple):
    """OPERAND.FIELD."""

    operand: "Node"
    field: str


class CelCall(NamedTuple):
    """FUNCTION(ARGS), or TARGET.FUNCTION(ARGS)."""

    function: str
    args: tuple["Node", ...]
    target: "Node | None" = None


class ListOf(NamedTuple):
    """[ITEMS]."""

    items: tuple["Node", ...]


class MapOf(NamedTuple):
    """{KEY: VALUE}."""

    entries: tuple[tuple["Node", "Node"], ...]


Node: TypeAlias = Literal | Name | Select | CelCall | ListOf | MapOf

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>[ \t\r\n\f]+|//[^\n]*)
    |(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0x[0-9a-fA-F]+[uU]?|\d+[uU]?)
    |(?P<text>[rR]?(?:\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%!?:.,()\[\]{}<>])
    """,
    re.VERBOSE,
)
_LEVELS: Final[Sequence[Mapping[str, str]]] = (
    {"||": "_||_"},
    {"&&": "_&&_"},
    {**{sign: f"_{sign}_" for sign in ("==", "!=", "<", "<=", ">", ">=")}, "in": "@in"},
    {"+": "_+_", "-": "_-_"},
    {"*": "_*_", "/": "_/_", "%": "_%_"},
)
_ESCAPES: Final = {**{c: c for c in "\\\"'`?"}, "n": "\n", "t": "\t", "r": "\r"}
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_END: Final = ("end", "")


def parsed(text: str) -> Node:
    """The tree of an expression.

    Raises:
        CelCompileError: it is not CEL.
        NotReplayedError: it is too long, too deep, or uses syntax that is not read.
    """
    parser = _Parser(_tokens(text))
    tree = parser.expression()
    if parser.next() is not _END:
        raise CelCompileError("syntax error after the expression")
    return tree


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at] == "`":
                raise NotReplayedError("CEL: a name in backticks")
            raise CelCompileError(f"syntax error at character {at + 1}")
        at = match.end()
        if match.lastgroup != "blank":
            found.append((str(match.lastgroup), match[0]))
        if len(found) > MAX_TOKENS:
            raise NotReplayedError(f"CEL: more than {MAX_TOKENS} tokens")
    return found


def depth_of(tree: Node) -> int:
    """The number of its levels."""
    level: list[object] = [tree]
    depth = 0
    while level:
        depth += any(isinstance(each, Node) for each in level)
        level = [part for each in level if isinstance(each, tuple) and not isinstance(each, Literal) for part in each]
    return depth


class _Parser:
    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        return self._tokens[self._at + ahead] if self._at + ahead < len(self._tokens) else _END

    def next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _accept(self, *signs: str) -> bool:
        """Whether these signs come next. They are then taken."""
        if all(self._peek(i) == ("sign", sign) for i, sign in enumerate(signs)):
            self._at += len(signs)
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise CelCompileError(f"syntax error: {sign!r} is expected, not {self._peek()[1]!r}")

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise NotReplayedError(f"CEL: nested more than {MAX_NESTING} deep")
        found = self._binary(0)
        if self._accept("?"):
            then = self._binary(0)
            self._expect(":")
            found = CelCall("_?_:_", (found, then, self.expression()))
        self._depth -= 1
        return found

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        left, signs = self._binary(level + 1), _LEVELS[level]
        while self._peek()[1] in signs and self._peek()[0] in ("sign", "name"):
            function = signs[self.next()[1]]
            left = CelCall(function, (left, self._binary(level + 1)))
        return left

    def _unary(self) -> Node:
        signs = []
        while self._peek() in (("sign", "!"), ("sign", "-")):
            signs.append(self.next()[1])
        found = self._member()
        for sign in reversed(signs):
            found = CelCall("!_" if sign == "!" else "-_", (found,))
        return found

    def _member(self) -> Node:
        found = self._primary()
        while True:
            if self._accept(".", "?"):
                found = CelCall(OPTIONAL_SELECT, (found, Literal(self._name())))
            elif self._accept("."):
                name = self._name()
                found = CelCall(name, self._items(")"), found) if self._accept("(") else Select(found, name)
            elif self._accept("["):
                function = OPTIONAL_INDEX if self._accept("?") else INDEX
                found = CelCall(function, (found, self.expression()))
                self._expect("]")
            elif isinstance(found, Name | Select) and self._accept("{"):
                raise NotReplayedError("CEL: a message")
            else:
                return found

    def _name(self) -> str:
        kind, text = self.next()
        if kind != "name" or text in _CONSTANTS or text == "in":
            raise CelCompileError(f"syntax error: a name is expected, not {text!r}")
        return text

    def _items(self, end: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self._accept(end):
            if items:
                self._expect(",")
                if end != ")" and self._accept(end):
                    break
            if self._peek() == ("sign", "?"):
                raise NotReplayedError("CEL: an optional element")
            items.append(self.expression())
        return tuple(items)

    def _primary(self) -> Node:
        if self._accept("("):
            found = self.expression()
            self._expect(")")
            return found
        if self._accept("["):
            return ListOf(self._items("]"))
        if self._accept("{"):
            return self._map()
        if self._accept("."):
            raise NotReplayedError("CEL: a name or a number that begins with a dot")
        kind, text = self.next()
        if kind == "name" and text not in _CONSTANTS and text != "in":
            if self._peek()[0] == "text" and text.lower() in ("b", "rb", "br"):
                raise NotReplayedError("CEL: bytes")
            return CelCall(text, self._items(")")) if self._accept("(") else Name(text)
        return Literal(_constant(kind, text))

    def _map(self) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not self._accept("}"):
            if entries:
                self._expect(",")
                if self._accept("}"):
                    break
            if self._peek() == ("sign", "?"):
                raise NotReplayedError("CEL: an optional entry")
            key = self.expression()
            self._expect(":")
            entries.append((key, self.expression()))
        return MapOf(tuple(entries))


def _constant(kind: str, text: str) -> object:
    if kind == "name" and text in _CONSTANTS:
        return _CONSTANTS[text]
    if kind == "float":
        return float(text)
    if kind == "int":
        is_unsigned = text[-1] in "uU"
        value = int(text.rstrip("uU"), 16 if text.startswith("0x") else 10)
        if value >= 2 ** (64 if is_unsigned else 63):
            raise NotReplayedError("CEL: a number of more than 64 bits")
        return Uint(value) if is_unsigned else value
    if kind == "text":
        return _string(text)
    raise CelCompileError(f"syntax error: {text or 'the end'!r} is not expected")


def _string(text: str) -> str:
    is_raw = text[0] in "rR"
    body = text[is_raw:]
    quotes = 3 if body[:3] in ('"""', "'''") else 1
    body = body[quotes:-quotes]
    if is_raw or "\\" not in body:
        return body
    parts = re.split(r"\\(.)", body)
    if any(escaped not in _ESCAPES for escaped in parts[1::2]):
        raise NotReplayedError("CEL: an escape in a string")
    return "".join(_ESCAPES[part] if i % 2 else part for i, part in enumerate(parts))
