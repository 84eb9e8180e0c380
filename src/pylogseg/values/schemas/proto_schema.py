"""Protobuf schemas: the text of `.proto` files and their imports as messages, fields and enums."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pylogseg.errors import RequestError
from pylogseg.values.schemas.columns import DEEPEST

SCALARS = {
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
}  # fmt: skip
#: Messages of Google's own files that are read as one value.
TIMES = {"google.protobuf.Timestamp", "google.protobuf.Duration"}
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<word>\.?[A-Za-z_][\w.]*)"""
    r"""|(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|[\d.]+(?:[eE][-+]?\d+)?))|(?P<sign>[{}\[\]()<>=;,:\-/+])""",
    re.DOTALL | re.ASCII,
)
#: What files of Google declare that schemas import; registries do not keep them.
_GOOGLE = {
    "google/protobuf/timestamp.proto": "message Timestamp { int64 seconds = 1; int32 nanos = 2; }",
    "google/protobuf/duration.proto": "message Duration { int64 seconds = 1; int32 nanos = 2; }",
    "google/protobuf/empty.proto": "message Empty {}",
    "google/protobuf/any.proto": "message Any { string type_url = 1; bytes value = 2; }",
    "google/protobuf/field_mask.proto": "message FieldMask { repeated string paths = 1; }",
    "google/protobuf/struct.proto": """
        message Struct { map<string, Value> fields = 1; }
        message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3;
            bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } }
        enum NullValue { NULL_VALUE = 0; }
        message ListValue { repeated Value values = 1; }""",
    "google/protobuf/wrappers.proto": "".join(
        f"message {kind[0].upper()}{kind[1:].replace('int', 'Int') if kind[0] == 'u' else kind[1:]}Value "
        f"{{ {kind} value = 1; }}"
        for kind in ("double", "float", "int64", "uint64", "int32", "uint32", "bool", "string", "bytes")
    ),
    "google/protobuf/descriptor.proto": "",
}


@dataclass
class ProtoEnum:
    """An enum; a closed one, of proto2, has no other numbers than its own."""

    name: str
    numbers: dict[str, int] = field(default_factory=dict)
    is_closed: bool = False


@dataclass
class ProtoField:
    """A field; `type` is a scalar, or the full name of a message or enum."""

    name: str
    number: int
    type: str
    is_repeated: bool = False
    has_presence: bool = False
    is_group: bool = False
    oneof: str = ""


@dataclass
class ProtoMessage:
    """A message; `nested` are the messages and groups declared in it."""

    name: str
    fields: list[ProtoField] = field(default_factory=list)
    nested: list[ProtoMessage] = field(default_factory=list)
    is_entry: bool = False


@dataclass
class ProtoFile:
    """A file with all that it and its imports declare, by full name."""

    top: list[ProtoMessage] = field(default_factory=list)
    messages: dict[str, ProtoMessage] = field(default_factory=dict)
    enums: dict[str, ProtoEnum] = field(default_factory=dict)

    def at(self, path: list[int]) -> ProtoMessage | None:
        """Return the message at a path of indexes."""
        those, message = self.top, None
        for index in path:
            if not 0 <= index < len(those):
                return None
            message = those[index]
            those = message.nested
        return message

    def find_message(self, name: str) -> ProtoMessage | None:
        """Return a message by its full name, or by a name that only one message has."""
        if name in self.messages:
            return self.messages[name]
        those = [proto for full, proto in self.messages.items() if full.endswith("." + name) and not proto.is_entry]
        return those[0] if len(those) == 1 else None


def parse_proto(text: str, imports: Mapping[str, str] | None = None, title: str = "the schema") -> ProtoFile:
    """Parse the text of a Protobuf file; `imports` are texts by the names that it uses, `title` is for errors."""
    file = ProtoFile()
    try:
        file.top = _parse(text, imports or {}, file)
    except RequestError as error:
        raise RequestError(f"{title} is not a Protobuf schema: {error}") from None
    return file


def _parse(text: str, imports: Mapping[str, str], into: ProtoFile) -> list[ProtoMessage]:
    """Declare the types of a file and of all its imports; then resolve the types of their fields."""
    parsers = [_ProtoParser(text, into)]
    done: set[str] = set()
    for parser in parsers:  # grows while it goes on: imports may form chains and rings
        parser.file()
        for name in parser.imports:
            if name in done:
                continue
            done.add(name)
            if name in imports:
                parsers.append(_ProtoParser(imports[name], into))
            elif name in _GOOGLE:
                text = f'syntax = "proto3"; package google.protobuf; {_GOOGLE[name]}'
                parsers.append(_ProtoParser(text, into))
            else:
                raise RequestError(f"the import {name} was not found")
    for parser in parsers:
        parser.resolve()
    return parsers[0].top


class _ProtoParser:
    def __init__(self, text: str, into: ProtoFile) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._into = into
        self._is_proto2 = True
        self._package = ""
        self.imports: list[str] = []
        self.top: list[ProtoMessage] = []
        self._open: list[tuple[str, ProtoField]] = []

    # ------------------------------------------------------------------ tokens

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise RequestError("the text ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, wanted: str) -> None:
        token = self._next()
        if token != wanted:
            raise RequestError(f"expected {wanted!r}, not {token[:40]!r}")

    def _name(self) -> str:
        token = self._next()
        if not (token[0].isalpha() or token[0] in "_."):
            raise RequestError(f"{token[:40]!r} is not a name")
        return token

    def _number(self) -> int:
        sign = -1 if self._peek() == "-" else 1
        if sign < 0:
            self._next()
        token = self._next()
        try:
            return sign * int(token, 8 if re.fullmatch(r"[-+]?0[0-7]+", token) else 0)
        except ValueError:
            raise RequestError(f"{token[:40]!r} is not a number") from None

    def _skip_to_end(self) -> None:
        """Go on behind the semicolon of a statement, or behind its block."""
        depth = 0
        while True:
            token = self._next()
            depth += (token in ("{", "[", "(")) - (token in ("}", "]", ")"))
            if depth <= 0 and token in (";", "}"):
                return

    def _skip_options(self) -> None:
        if self._peek() != "[":
            return
        depth = 0
        while True:
            token = self._next()
            depth += (token in ("{", "[")) - (token in ("}", "]"))
            if depth == 0:
                return

    # ------------------------------------------------------------------ declarations

    def file(self) -> None:
        while self._peek():
            word = self._next()
            if word in ("syntax", "edition"):
                self._expect("=")
                self._is_proto2 = self._next()[1:-1] == "proto2"
                self._is_edition = word == "edition"
                self._expect(";")
            elif word == "package":
                self._package = self._name()
                self._expect(";")
            elif word == "import":
                if self._peek() in ("public", "weak", "option"):
                    self._next()
                self.imports.append(self._next()[1:-1])
                self._expect(";")
            elif word == "message":
                self.top.append(self._message(self._package, 0))
            elif word == "enum":
                self._enum(self._package)
            elif word in ("option", "service", "extend"):
                self._skip_to_end()
            elif word != ";":
                raise RequestError(f"{word[:40]!r} is not a declaration")

    _is_edition = False

    def _message(self, scope: str, depth: int) -> ProtoMessage:
        name = self._name()
        self._expect("{")
        return self._body(_qualify(scope, name), depth)

    def _body(self, full: str, depth: int) -> ProtoMessage:
        if depth > DEEPEST:
            raise RequestError("nested too deeply")
        if full in self._into.messages:
            raise RequestError(f"the message {full} is defined twice")
        message = self._into.messages[full] = ProtoMessage(full)
        self._fields(message, depth, "")
        numbers = [field.number for field in message.fields]
        if len(set(numbers)) < len(numbers) or not all(0 < number < 1 << 29 for number in numbers):
            raise RequestError(f"the message {full} has two fields of one number, or a number that is not allowed")
        return message

    def _fields(self, made: ProtoMessage, depth: int, oneof: str) -> None:
        while True:
            word = self._next()
            if word == "}":
                return
            if word == ";":
                continue
            if word == "message" and self._tokens[self._at + 1 : self._at + 2] == ["{"]:
                made.nested.append(self._message(made.name, depth + 1))
            elif word == "enum" and self._tokens[self._at + 1 : self._at + 2] == ["{"]:
                self._enum(made.name)
            elif word == "oneof" and self._tokens[self._at + 1 : self._at + 2] == ["{"]:
                if oneof:
                    raise RequestError("a oneof in a oneof")
                name = self._name()
                self._expect("{")
                self._fields(made, depth, name)
            elif word in ("option", "reserved", "extensions", "extend") and self._peek() != "=":
                self._skip_to_end()
            else:
                self._field(word, made, depth, oneof)

    def _field(self, word: str, made: ProtoMessage, depth: int, oneof: str) -> None:
        label = ""
        if word in ("optional", "required", "repeated"):
            label, word = word, self._name()
        if word == "map" and self._peek() == "<":
            self._map(made)
            return
        is_group = word == "group"
        name = self._name()
        self._expect("=")
        number = self._number()
        self._skip_options()
        kind = word
        if is_group:
            self._expect("{")
            group = self._body(_qualify(made.name, name), depth + 1)
            made.nested.append(group)
            name, kind = name.lower(), "." + group.name
        else:
            self._expect(";")
        presence = bool(oneof) or self._is_proto2 or self._is_edition or label == "optional"
        added = ProtoField(name, number, kind, label == "repeated", presence and label != "repeated", is_group, oneof)
        made.fields.append(added)
        if kind not in SCALARS:
            self._open.append((made.name, added))

    def _map(self, made: ProtoMessage) -> None:
        self._expect("<")
        key = self._name()
        self._expect(",")
        kind = self._name()
        self._expect(">")
        name = self._name()
        self._expect("=")
        number = self._number()
        self._skip_options()
        self._expect(";")
        full = f"{made.name}.{name}:entry"
        value = ProtoField("value", 2, kind)
        self._into.messages[full] = ProtoMessage(full, [ProtoField("key", 1, key), value], is_entry=True)
        if kind not in SCALARS:
            self._open.append((made.name, value))
        made.fields.append(ProtoField(name, number, full, is_repeated=True))

    def _enum(self, scope: str) -> None:
        name = self._name()
        enum = ProtoEnum(_qualify(scope, name), is_closed=self._is_proto2)
        self._into.enums[enum.name] = enum
        self._expect("{")
        while True:
            word = self._next()
            if word == "}":
                return
            if word == ";":
                continue
            if word in ("option", "reserved") and self._peek() != "=":
                self._skip_to_end()
                continue
            self._expect("=")
            enum.numbers[word] = self._number()
            self._skip_options()
            self._expect(";")

    def resolve(self) -> None:
        """Find the types that fields name: from the innermost scope outwards."""
        names = {*self._into.messages, *self._into.enums}
        for scope, member in self._open:
            if member.type.startswith("."):
                tries = [member.type[1:]]
            else:
                parts = scope.split(".")
                tries = [".".join([*parts[:i], member.type]) for i in range(len(parts), -1, -1)]
            full_name = next((name for name in tries if name in names), None)
            if full_name is None:
                raise RequestError(f"the type {member.type} of field {member.name} is not defined")
            member.type = full_name
            if full_name in self._into.messages and not member.is_repeated:
                member.has_presence = True


def _qualify(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise RequestError(f"unexpected {text[at : at + 20]!r} at character {at}")
        if match.lastgroup is not None:
            tokens.append(match[0])
        at = match.end()
    return tokens
