"""What is done, for whom and in which order; each module is a command line, too.

What a command must say before its imports is said here: they take a second or more, and some of
them end with a traceback where the reason is the operator's to mend.
"""

import os
import sys
from importlib.machinery import PathFinder

# While a package is imported on behalf of ``python -m``, this is the name of the program.
_COMMAND = sys.argv[:1] == ["-m"]


def _check_packages() -> None:
    """Leave with words where another interpreter than the set-up one runs a command."""
    if any(PathFinder.find_spec(name) is None for name in ("cyclopts", "prefect")):
        _leave(
            f"{sys.executable or 'this Python'} does not have Proxflow's packages",
            "`. .venv/bin/activate` in the clone's folder, after `make setup`",
        )


def _check_authorities() -> None:
    """Leave with words where the environment names certificates that are not there.

    Prefect's client reads them while it is imported, before any command could say anything.
    """
    for name, there in (("SSL_CERT_FILE", os.path.isfile), ("SSL_CERT_DIR", os.path.isdir)):
        value = os.environ.get(name)
        if not value:
            continue
        if not there(value):
            _leave(f"{name} is {value!r}, which is not there", f"correct it, or unset {name}")
        if name == "SSL_CERT_FILE" and (trouble := _unreadable(value)):
            _leave(
                f"{name} is {value!r}, which {trouble}",
                f"name a file of CA certificates in PEM form, or unset {name}",
            )


def _unreadable(file: str) -> str | None:
    """Why no certificates can be read from a file, None where they can."""
    import ssl

    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError:
        return "holds no certificates in PEM form"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def _say_what_is_read() -> None:
    """A first word for whoever watches: which file is read."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    file = next(filter(os.path.isfile, sys.argv[1:]), None)
    if file is not None:
        sys.stderr.write(f"reading {file}\n")
        sys.stderr.flush()


def _leave(what: str, advice: str) -> None:
    sys.stderr.write(f"error: {what}\n  next: {advice}\n")
    raise SystemExit(2)


if _COMMAND:
    _check_packages()
_check_authorities()
if _COMMAND:
    _say_what_is_read()
