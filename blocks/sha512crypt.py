"""SHA-512 crypt of a password, as ``mkpasswd -m sha-512`` makes it.

Python's own module is gone since 3.13. The algorithm is Ulrich Drepper's "Unix crypt using SHA-256
and SHA-512", version 0.6, with its default of 5000 rounds.
"""

from __future__ import annotations

import hashlib
from typing import Final

_ROUNDS: Final = 5000
_LETTERS: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LONGEST_SALT: Final = 16


def sha512_crypt(password: str, salt: str) -> str:
    """``$6$SALT$...``; the same password and salt give the same text.

    Raises ValueError for a salt that is empty, longer than 16 or not of ``./0-9A-Za-z``.
    """
    if not 0 < len(salt) <= _LONGEST_SALT or not set(salt) <= set(_LETTERS):
        raise ValueError("a salt is 1 to 16 characters of ./0-9A-Za-z")
    return f"$6${salt}${_text(_digest(password.encode(), salt.encode()))}"


def salt_for(*words: str) -> str:
    """A salt that is always the same for these words."""
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return "".join(_LETTERS[byte & 63] for byte in digest[:_LONGEST_SALT])


def _digest(password: bytes, salt: bytes) -> bytes:
    inner = hashlib.sha512(password + salt + password).digest()
    outer = hashlib.sha512(password + salt + _repeated(inner, len(password)))
    length = len(password)
    while length:
        outer.update(inner if length & 1 else password)
        length >>= 1
    current = outer.digest()
    word = _repeated(hashlib.sha512(password * len(password)).digest(), len(password))
    pinch = _repeated(hashlib.sha512(salt * (16 + current[0])).digest(), len(salt))
    for number in range(_ROUNDS):
        odd = number & 1
        parts = (
            word if odd else current,
            pinch if number % 3 else b"",
            word if number % 7 else b"",
            current if odd else word,
        )
        current = hashlib.sha512(b"".join(parts)).digest()
    return current


def _repeated(block: bytes, length: int) -> bytes:
    return (block * (length // len(block) + 1))[:length]


def _text(digest: bytes) -> str:
    """Groups of three bytes, 21 apart, in the algorithm's order; the last byte stands alone."""
    found = ""
    first, second, third = 0, 21, 42
    for _ in range(21):
        found += _letters(digest[first] << 16 | digest[second] << 8 | digest[third], 4)
        first, second, third = second + 1, third + 1, first + 1
    return found + _letters(digest[63], 2)


def _letters(value: int, count: int) -> str:
    return "".join(_LETTERS[value >> 6 * place & 63] for place in range(count))
