"""A place in a script's tokens, and the pieces that begin there."""

from __future__ import annotations

from deployments.lab.shellwords import Segment, ShellSyntaxError, Token

REDIRECTIONS = (">", ">>", "<", "<<", "<<-", "2>", "2>>", "&>", ">&")


class Cursor:
    """A place in a row of tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self._at >= len(self._tokens)

    @property
    def operator(self) -> str:
        """The operator at this place, empty for a word."""
        return "" if self.done else self._tokens[self._at].operator

    @property
    def word(self) -> str | None:
        """The plain word at this place."""
        return None if self.done else self._tokens[self._at].plain

    def take(self) -> Token:
        """The token at this place; the next one follows."""
        if self.done:
            raise ShellSyntaxError("end of file unexpected")
        self._at += 1
        return self._tokens[self._at - 1]

    def skip(self, *operators: str) -> None:
        """Pass over operators."""
        while self.operator in operators and not self.done:
            self._at += 1

    def redirections(self) -> list[Token]:
        """Redirections from here on, each with the word behind it."""
        found = []
        while self.operator in REDIRECTIONS:
            token = self.take()
            if token.operator in ("<<", "<<-"):
                found.append(token)
                continue
            if token.operator == "2>" and self.operator == "&":
                self.take()
                number = "".join(one.text for one in self.take().segments)
                target = [Segment("text", f"&{number}", True)]
            else:
                target = self.take().segments
            found.append(Token(token.operator, target))
        return found

    def is_function(self) -> bool:
        """Whether a function begins here."""
        ahead = [token.operator for token in self._tokens[self._at + 1 : self._at + 3]]
        return self.word is not None and ahead == ["(", ")"]

    def take_function(self) -> str:
        """Its name; its body follows."""
        name = self.take().plain or ""
        self._at += 2
        self.skip("\n")
        if self.word != "{":
            raise ShellSyntaxError('"{" expected')
        self.take()
        return name

    def until_closing(self, closing: str) -> list[Token]:
        """Tokens up to the bracket that closes the one before; it is taken too."""
        opening = "(" if closing == ")" else "{"
        depth = 1
        body: list[Token] = []
        while True:
            token = self.take()
            name = token.operator if closing == ")" else token.plain
            depth += (name == opening) - (name == closing)
            if depth == 0:
                return body
            body.append(token)

    def until_word(self, *words: str, keep: bool = False) -> list[Token]:
        """Tokens up to one of the words at this level; ``keep`` leaves it to be taken next."""
        depth = 0
        body: list[Token] = []
        while True:
            if depth == 0 and self.word in words:
                if not keep:
                    self.take()
                return body
            token = self.take()
            depth += (token.plain in ("if", "for")) - (token.plain in ("fi", "done"))
            body.append(token)
