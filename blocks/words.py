"""Small words for messages."""


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 guest``, ``2 guests``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
