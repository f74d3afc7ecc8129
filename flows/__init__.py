"""What is done, for whom and in which order; each module is a command line, too."""

import os
import sys


def _check_authorities() -> None:
    """Leave with words where the environment names certificates that are not there.

    Prefect's client reads them while it is imported, before any command could say anything.
    """
    for name, there in (("SSL_CERT_FILE", os.path.isfile), ("SSL_CERT_DIR", os.path.isdir)):
        value = os.environ.get(name)
        if value and not there(value):
            sys.stderr.write(
                f"error: {name} is {value!r}, which is not there\n"
                f"  next: correct it, or unset {name}\n"
            )
            raise SystemExit(2)


_check_authorities()
