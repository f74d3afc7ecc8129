"""Words and operators of shell scripts, with quotes, variables, substitutions, here-documents."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

OPERATORS = ("&&", "||", ";;", "<<-", "<<", ">>", ">&", "2>>", "2>", "&>", ">", "<", "|", "&", ";")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ShellSyntaxError(ValueError):
    """A script that the simulated shell cannot read."""


@dataclass(frozen=True)
class Segment:
    """A piece of a word: plain text, a variable's name, or a script whose output is meant."""

    kind: Literal["text", "variable", "script"]
    text: str
    quoted: bool
    default: str = ""


@dataclass
class Token:
    """A word (``segments``) or an operator; here-documents hang on their operator."""

    operator: str = ""
    segments: list[Segment] = field(default_factory=list)
    document: list[Segment] = field(default_factory=list)

    @property
    def plain(self) -> str | None:
        """The text of a word without quotes and substitutions."""
        if self.operator or len(self.segments) != 1:
            return None
        one = self.segments[0]
        return one.text if one.kind == "text" and not one.quoted else None


class Lexer:
    """Reads one script."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._waiting: list[tuple[Token, str, bool, bool]] = []

    def tokens(self) -> list[Token]:
        """All tokens of the script."""
        found: list[Token] = []
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == "\\" and self._text[self._at : self._at + 2] == "\\\n":
                self._at += 2
            elif character in " \t\r":
                self._at += 1
            elif character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif character == "\n":
                self._at += 1
                found.append(Token("\n"))
                self._read_documents()
            else:
                found.append(self._operator() or self._word())
                self._note_document(found)
        return found

    def _operator(self) -> Token | None:
        rest = self._text[self._at :]
        if rest[0] in "()":
            self._at += 1
            return Token(rest[0])
        for operator in OPERATORS:
            if rest.startswith(operator):
                self._at += len(operator)
                return Token(operator)
        return None

    def _note_document(self, found: list[Token]) -> None:
        if len(found) < 2 or found[-2].operator not in ("<<", "<<-") or found[-1].operator:
            return
        word = found.pop()
        name = "".join(segment.text for segment in word.segments)
        quoted = any(segment.quoted for segment in word.segments)
        self._waiting.append((found[-1], name, quoted, _strips(found[-1])))

    def _read_documents(self) -> None:
        for token, name, quoted, strip in self._waiting:
            lines: list[str] = []
            while True:
                if self._at >= len(self._text):
                    break
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = end + 1
                line = line.lstrip("\t") if strip else line
                if line == name:
                    break
                lines.append(line + "\n")
            body = "".join(lines)
            plain = [Segment("text", body, True)]
            token.document = plain if quoted else list(_inside_quotes(body))
        self._waiting.clear()

    def _word(self) -> Token:
        segments: list[Segment] = []
        plain = ""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in " \t\r\n;|&<>()":
                break
            if character == "\\":
                segments.append(Segment("text", self._text[self._at + 1 : self._at + 2], True))
                self._at += 2
            elif character == "'":
                end = self._text.find("'", self._at + 1)
                if end < 0:
                    raise ShellSyntaxError("Unterminated quoted string")
                segments.append(Segment("text", self._text[self._at + 1 : end], True))
                self._at = end + 1
            elif character == '"':
                end = _closing_quote(self._text, self._at + 1)
                inner = list(_inside_quotes(self._text[self._at + 1 : end]))
                segments += inner or [Segment("text", "", True)]
                self._at = end + 1
            elif character in "$`":
                segment, self._at = _substitution(self._text, self._at, quoted=False)
                segments.append(segment)
            else:
                plain, self._at = character, self._at + 1
                while (
                    self._at < len(self._text)
                    and self._text[self._at] not in " \t\r\n;|&<>()\\'\"$`"
                ):
                    plain += self._text[self._at]
                    self._at += 1
                segments.append(Segment("text", plain, False))
        return Token(segments=segments)


def _strips(token: Token) -> bool:
    return token.operator == "<<-"


def _closing_quote(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text.startswith("$(", at):
            at = _closing_paren(text, at + 2) + 1
        elif text[at] == '"':
            return at
        else:
            at += 1
    raise ShellSyntaxError("Unterminated quoted string")


def _closing_paren(text: str, at: int) -> int:
    depth = 1
    while at < len(text):
        if text[at] == "'":
            at = text.find("'", at + 1)
            if at < 0:
                break
        elif text[at] == '"':
            at = _closing_quote(text, at + 1)
        elif text[at] in "()":
            depth += 1 if text[at] == "(" else -1
            if depth == 0:
                return at
        at += 1
    raise ShellSyntaxError('end of file unexpected (expecting ")")')


def _inside_quotes(text: str) -> list[Segment]:
    found: list[Segment] = []
    plain, at = "", 0
    while at < len(text):
        if text[at] == "\\" and text[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
            plain += "" if text[at + 1] == "\n" else text[at + 1]
            at += 2
        elif text[at] in "$`":
            if plain:
                found.append(Segment("text", plain, True))
                plain = ""
            segment, at = _substitution(text, at, quoted=True)
            found.append(segment)
        else:
            plain += text[at]
            at += 1
    if plain:
        found.append(Segment("text", plain, True))
    return found


def _substitution(text: str, at: int, *, quoted: bool) -> tuple[Segment, int]:
    if text[at] == "`":
        end = text.find("`", at + 1)
        if end < 0:
            raise ShellSyntaxError("Unterminated quoted string")
        return Segment("script", text[at + 1 : end], quoted), end + 1
    if text.startswith("$(", at):
        end = _closing_paren(text, at + 2)
        return Segment("script", text[at + 2 : end], quoted), end + 1
    if text.startswith("${", at):
        end = text.find("}", at)
        if end < 0:
            raise ShellSyntaxError("Unterminated quoted string")
        name, _, default = text[at + 2 : end].partition(":-")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?]", name):
            raise ShellSyntaxError("Bad substitution")
        return Segment("variable", name, quoted, default), end + 1
    match = _NAME.match(text, at + 1)
    if match:
        return Segment("variable", match.group(), quoted), match.end()
    if text[at + 1 : at + 2] in tuple("?@*#$0123456789") and at + 1 < len(text):
        return Segment("variable", text[at + 1], quoted), at + 2
    return Segment("text", "$", quoted), at + 1
