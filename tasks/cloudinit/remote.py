"""Files onto a node over SSH: with the OpenSSH client, and the caller's own keys and settings.

No password is asked for and no host key is accepted unseen. What is written goes by standard
input, never in an argument.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
from collections.abc import Mapping

from blocks.manifest.guest import SnippetHost
from tasks.errors import StageError

CONNECT_SECONDS = 15
_WRITE_SECONDS, _TRY_SECONDS = 120, 40
_NO_FOLDER, _NO_RIGHT, _TORN = 66, 77, 74
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

# Whatever is not finished goes away again.
_BEGIN = """\
set -u
umask 077
folder={folder}
[ -d "$folder" ] || exit 66
made=
trap 'rm -f "$made"' EXIT
"""
_TRY = """\
made=$(mktemp "$folder/.proxflow.XXXXXX") || exit 77
"""
# Each file appears whole or not at all: it gets its name only once its hash is right. head takes
# no byte more than it is told, so that the next file begins where this one ends.
_WRITE = """\
put() {{
  made=$(mktemp "$folder/.proxflow.XXXXXX") || exit 77
  head -c "$1" >"$made" || exit 77
  [ "$(sha256sum <"$made" | cut -c1-64)" = "$2" ] || exit 74
  mv -f "$made" "$folder/$3" || exit 77
}}
{puts}
"""


def write_files(host: SnippetHost, node: str, folder: str, files: Mapping[str, str]) -> None:
    """Write files, name to text, into a folder of the node that is there already.

    They are readable by their owner alone; the server reads snippets as root. Raises StageError,
    which says what to do, and never repeats what was to be written.
    """
    data = {name: text.encode() for name, text in files.items()}
    puts = (
        shlex.join(["put", str(len(item)), hashlib.sha256(item).hexdigest(), name])
        for name, item in data.items()
    )
    script = _WRITE.format(puts="\n".join(puts))
    _run(host, node, folder, script, b"".join(data.values()), _WRITE_SECONDS)


def try_folder(host: SnippetHost, node: str, folder: str) -> None:
    """Log in and see whether files could be written into a folder of the node.

    A file without a byte is made there for a moment. Raises StageError as ``write_files`` does.
    """
    _run(host, node, folder, _TRY, b"", _TRY_SECONDS)


def _run(host: SnippetHost, node: str, folder: str, script: str, data: bytes, seconds: int) -> None:
    # Brackets belong to addresses in URLs; the client knows none.
    target = (host.host or node).strip("[]")
    begin = _BEGIN.format(folder=shlex.quote(folder))
    done = _ssh(host, target, begin + script, data, seconds)
    if done.returncode != 0:
        raise _refused(host, target, folder, done)


def _ssh(
    host: SnippetHost, target: str, script: str, data: bytes, seconds: int
) -> subprocess.CompletedProcess[bytes]:
    if not _HOST.fullmatch(target) or not _USER.fullmatch(host.user):
        raise StageError(
            f"{host.user}@{target} is no user and host that SSH could log in to",
            advice="set cloud_init.snippets.host and .user to plain names",
        )
    options = ["BatchMode=yes", f"ConnectTimeout={CONNECT_SECONDS}", "ServerAliveInterval=15"]
    # The usual port is left to the caller's own settings.
    port = [] if host.port == 22 else ["-p", str(host.port)]
    command = ["ssh", "-T", *port, "-l", host.user]
    command += [word for option in options for word in ("-o", option)]
    command += ["--", target, f"exec sh -c {shlex.quote(script)}"]
    try:
        return subprocess.run(
            command, input=data, capture_output=True, timeout=seconds, check=False
        )
    except FileNotFoundError:
        raise StageError(
            "there is no OpenSSH client here, which writes the snippets",
            advice="install openssh-client, or set cloud_init.method to seed, which needs no SSH",
        ) from None
    except subprocess.TimeoutExpired:
        raise StageError(
            f"SSH to {target}, where the snippets go, did not end within {seconds} s",
            advice=f"try `{_login(host, target)} true` by hand",
        ) from None


def _login(host: SnippetHost, target: str) -> str:
    port = f" -p {host.port}" if host.port != 22 else ""
    return f"ssh{port} {host.user}@{target}"


def _refused(
    host: SnippetHost, target: str, folder: str, done: subprocess.CompletedProcess[bytes]
) -> StageError:
    login = _login(host, target)
    known = {
        _NO_FOLDER: (
            f"{target} has no folder {folder}",
            "does the storage have content snippets? The server makes the folder once it has; "
            "cloud_init.snippets.directory names another one",
        ),
        _NO_RIGHT: (
            f"{host.user} may not write into {folder} of {target}, or it is full",
            f"give {host.user} the right to write there, or set cloud_init.snippets.user",
        ),
        _TORN: (
            f"the snippets did not arrive whole on {target}",
            "the connection broke off; nothing was put in place. Run the same again",
        ),
    }
    if done.returncode in known:
        message, advice = known[done.returncode]
        error = StageError(message, advice=advice)
        error.transient = done.returncode == _TORN
        return error
    said = done.stderr.decode(errors="replace").strip().splitlines()
    why = said[-1][:300] if said else f"it ended with {done.returncode}"
    error = StageError(f"{login} does not work: {why}", advice=_login_advice(why, login))
    error.transient = any(word in why.lower() for word in ("timed out", "reset", "closed by"))
    return error


def _login_advice(why: str, login: str) -> str:
    lowered = why.lower()
    if "host key" in lowered:
        return f"log in once with `{login}` and look at the host key, or put it into known_hosts"
    if "permission denied" in lowered or "too many authentication" in lowered:
        return "put your public key into its authorized_keys; is the key in your SSH agent?"
    return (
        f"try `{login} true` by hand; set cloud_init.snippets, or cloud_init.method to seed, "
        "which needs no SSH"
    )
