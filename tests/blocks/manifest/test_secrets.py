"""Secrets: where they come from, that they stay the same, and that nothing shows them."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocks.manifest.environment import Environment
from blocks.manifest.faults import Fault, ManifestError
from blocks.manifest.generated import Generator
from blocks.manifest.hooks import ExecHook
from blocks.manifest.loader import load as load_all
from blocks.manifest.loader import load_environment
from blocks.manifest.render import rendered, to_yaml
from blocks.manifest.secrets import Resolver, Secrets
from blocks.manifest.tree import Item
from tests.blocks.manifest.sample import ENV, SEED, changed, faults_of, load, only_fault, write

HASH = "distro: rocky9\n      root_password_hash: "


def with_hash(template: str) -> str:
    """The sample with a template as root's password hash."""
    return changed("distro: rocky9", HASH + json.dumps(template))


def with_secret(template: str) -> str:
    """The sample with a template where any text may be a secret."""
    command = f"{{ type: exec, command: x, env: {{ A: {json.dumps(template)} }} }}"
    return f"{ENV}hooks:\n  on_apply_start: [{command}]\n"


def secret_of(environment: Environment) -> str:
    """What the template became."""
    (hook,) = environment.hooks.on_apply_start
    assert isinstance(hook, ExecHook)
    return hook.env["A"].get_secret_value()


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${env:SECRET}", "s3cr3t"),
        ("pre-${env:SECRET}-post", "pre-s3cr3t-post"),
        ("${env:SECRET}${env:OTHER}", "s3cr3tmore"),
        ("${env:SECRET|base64}", base64.b64encode(b"s3cr3t").decode()),
        ("${env:SECRET | base64}", base64.b64encode(b"s3cr3t").decode()),
        ("${env:NONE|default:fallback}", "fallback"),
        ("${env:NONE | default=fallback}", "fallback"),
        ("${env:NONE|default:fall|base64}", base64.b64encode(b"fall").decode()),
        ("${env:EMPTY|default:fallback}", "fallback"),
        ("${file:none|default:fallback}", "fallback"),
        ("${vault:a/b#c|default:fallback}", "fallback"),
        ("${ref:metadata.nope|default:fallback}", "fallback"),
        ("${ref:metadata.name}", "shop"),
        ("${ref:spec.hypervisor.nodes.db1.proxmox.vm_id}!", "101!"),
        ("${ref:spec.hypervisor.nodes.db1.nics[0].ipv4.address}", "10.0.0.11/24"),
        ("$${env:SECRET}", "${env:SECRET}"),
        ("${HOME:-x} $HOME ${HOME}", "${HOME:-x} $HOME ${HOME}"),
    ],
)
def test_a_template_becomes_its_value(template: str, value: str, tmp_path: Path) -> None:
    env = {"SECRET": "s3cr3t", "OTHER": "more", "EMPTY": ""}

    assert secret_of(load(tmp_path, with_secret(template), env)) == value


def test_a_file_is_read_beside_the_manifest_without_its_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("from a file\n")

    environment = load(tmp_path, with_secret("${file:./pw}"))

    assert secret_of(environment) == "from a file"
    assert tmp_path / "pw" in environment.source_files


def test_a_template_may_stand_for_a_number(tmp_path: Path) -> None:
    text = changed("vm_id: 101", 'vm_id: "${env:VMID}"')

    assert load(tmp_path, text, {"VMID": "4711"}).guests[0].vmid == 4711


def test_references_follow_each_other(tmp_path: Path) -> None:
    text = changed("domain: example.com", 'domain: "${ref:metadata.dbx_context}"')
    text = changed("proxmox_context: prod", 'dbx_context: "${env:D}.example.com"', text)

    assert load(tmp_path, text, {"D": "dev"}).domain == "dev.example.com"


def test_references_in_a_circle_are_shown_as_a_chain(tmp_path: Path) -> None:
    text = changed("domain: example.com", 'domain: "${ref:metadata.dbx_context}"')
    text = changed("proxmox_context: prod", 'dbx_context: "${ref:metadata.domain}"', text)

    faults = faults_of(write(tmp_path, text))

    assert any("metadata.domain -> metadata.dbx_context" in fault.problem for fault in faults)


def test_layers_for_other_tools_keep_their_templates(tmp_path: Path) -> None:
    text = ENV + '  linux: { kind: Linux, password: "${env:NOT_SET}", more: { $ref: ./nope } }\n'

    assert load(tmp_path, text).name == "shop"


def test_a_generated_password_is_stable_and_differs_by_label_environment_and_seed() -> None:
    def make(env: str = "shop", label: str = "", seed: bytes = SEED) -> str:
        return Generator(Path("/nonexistent"), env, seed).password(24, label)

    assert make() == make()
    assert len({make(), make(label="b"), make(env="shop2"), make(seed=bytes(32))}) == 4
    assert re.fullmatch(r"[A-Za-z0-9]{24}", make())


@pytest.mark.parametrize("length", [1, 16, 65, 4096])
def test_a_generated_password_has_the_length_that_was_asked_for(length: int) -> None:
    assert len(Generator(Path("/nonexistent"), "shop", SEED).password(length)) == length


@pytest.mark.parametrize("template", ["${gen:password:20:db}", "${gen:password,length=20,seed=db}"])
def test_both_spellings_of_a_generated_password_are_known(template: str, tmp_path: Path) -> None:
    expected = Generator(tmp_path, "shop", SEED).password(20, "db")

    assert secret_of(load(tmp_path, with_secret(template))) == expected


@pytest.mark.parametrize("template", ["${gen:password}", "${gen:password:x}", "${gen:password:0}"])
def test_a_generated_password_without_a_length_is_refused(template: str, tmp_path: Path) -> None:
    fault = only_fault(tmp_path, with_hash(template))

    assert "the password needs its length" in fault.problem
    assert "${gen:password:24}" in fault.remedy


def test_the_seed_is_kept_for_this_user_only_and_used_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    path = write(tmp_path, with_secret("${gen:password:32}"))
    env = {"PROXFLOW_STATE_DIR": str(state)}

    once = secret_of(load_environment(path, env=env))
    again = secret_of(load_environment(path, env=env))

    kept = state / "seeds" / "shop"
    assert once == again
    assert len(kept.read_bytes()) == 32
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [entry.name for entry in kept.parent.iterdir()] == ["shop"]


def test_no_state_is_written_where_nothing_is_generated(tmp_path: Path) -> None:
    state = tmp_path / "state"

    load_environment(write(tmp_path), env={"PROXFLOW_STATE_DIR": str(state)})

    assert not state.exists()


def test_processes_that_start_at_once_get_the_same_password(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from blocks.manifest.generated import Generator\n"
        "print(Generator(Path(sys.argv[1]), 'shop').password(32))"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]

    said = {process.communicate(timeout=60)[0] for process in running}

    assert len(said) == 1
    assert len(said.pop().strip()) == 32


def test_threads_that_start_at_once_get_the_same_seed(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)
    said: list[str] = []

    def ask() -> None:
        barrier.wait()
        said.append(Generator(tmp_path, "shop").password(32))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(said) == 8
    assert len(set(said)) == 1


def test_a_damaged_seed_is_no_reason_to_invent_another_one(tmp_path: Path) -> None:
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / "shop").write_bytes(b"short")
    path = write(tmp_path, with_secret("${gen:password:32}"))

    (fault,) = _faults_with_state(path, tmp_path)

    assert "does not hold 32 bytes" in fault


def test_a_state_folder_that_cannot_be_used_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = write(tmp_path, with_secret("${gen:password:32}"))

    (fault,) = _faults_with_state(path, tmp_path / "file")

    assert "the state folder cannot be used" in fault
    assert "PROXFLOW_STATE_DIR" in fault


def _faults_with_state(path: Path, state: Path) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load_environment(path, env={"PROXFLOW_STATE_DIR": str(state)})
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.skipif(
    not any((Path(p) / "ssh-keygen").exists() for p in os.environ["PATH"].split(os.pathsep)),
    reason="ssh-keygen is not installed",
)
def test_a_generated_ssh_key_puts_its_public_half_and_keeps_the_pair(tmp_path: Path) -> None:
    text = re.sub(r'root: \["[^"]*"\]', 'root: ["${gen:ssh_key:ed25519}"]', ENV)
    env = {"PROXFLOW_STATE_DIR": str(tmp_path / "state")}
    path = write(tmp_path, text)

    keys = {
        source.installation.root_ssh_keys
        for _ in range(2)
        for guest in load_environment(path, env=env).guests
        if (source := guest.install) is not None
    }

    folder = tmp_path / "state" / "keys" / "shop" / "ed25519"
    assert keys == {((folder / "id.pub").read_text().strip(),)}
    assert (folder / "id.pub").read_text().startswith("ssh-ed25519 ")
    assert stat.S_IMODE((folder / "id").stat().st_mode) == 0o600


def test_an_unknown_type_of_ssh_key_is_refused(tmp_path: Path) -> None:
    fault = only_fault(tmp_path, with_hash("${gen:ssh_key:dsa}"))

    assert "'dsa' is no type of SSH key; use one of ed25519, ecdsa, rsa" in fault.problem


class _Vault(BaseHTTPRequestHandler):
    """Answers as the key/value engine does."""

    calls: list[str] = []  # noqa: RUF012 - shared with the test on purpose

    def do_GET(self) -> None:
        type(self).calls.append(self.path)
        allowed = self.headers["X-Vault-Token"] == "vault-token"
        found = self.path == "/v1/secret/data/db"
        status = 403 if not allowed else 200 if found else 404
        body = json.dumps({"data": {"data": {"password": "from-vault"}}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def vault() -> Iterator[dict[str, str]]:
    server = HTTPServer(("127.0.0.1", 0), _Vault)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    _Vault.calls.clear()
    yield {
        "VAULT_ADDR": f"http://127.0.0.1:{server.server_port}",
        "VAULT_TOKEN": "vault-token",
    }
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("path", ["secret/data/db", "secret/db"])
def test_vault_is_read_once_a_path(path: str, vault: dict[str, str], tmp_path: Path) -> None:
    template = f"${{vault:{path}#password}}-${{vault:{path}#password}}"

    assert secret_of(load(tmp_path, with_secret(template), vault)) == "from-vault-from-vault"
    assert _Vault.calls == ["/v1/secret/data/db"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("secret/db#nope", "Vault has no key 'nope' at secret/db"),
        ("secret/other#x", "Vault has nothing at secret/data/other"),
        ("secret#x", "needs engine, path and key"),
    ],
)
def test_what_vault_does_not_have_is_said(
    spec: str, words: str, vault: dict[str, str], tmp_path: Path
) -> None:
    assert words in str(only_fault(tmp_path, with_hash(f"${{vault:{spec}}}"), vault))


def test_a_token_that_vault_refuses_is_said_but_not_shown(
    vault: dict[str, str], tmp_path: Path
) -> None:
    env = {**vault, "VAULT_TOKEN": "wrong-token"}

    fault = str(only_fault(tmp_path, with_hash("${vault:secret/db#password}"), env))

    assert "does not let this token read secret/data/db" in fault
    assert "wrong-token" not in fault


def test_a_vault_that_does_not_answer_is_said(tmp_path: Path) -> None:
    env = {"VAULT_ADDR": "http://127.0.0.1:9", "VAULT_TOKEN": "t"}

    fault = only_fault(tmp_path, with_hash("${vault:secret/db#password}"), env)

    assert "Vault at http://127.0.0.1:9 does not answer" in fault.problem


def show(path: Path, env: dict[str, str]) -> str:
    """Everything that a rendering prints."""
    return to_yaml(rendered(load_all(path, env=env, seed=SEED), guests=True))


def test_a_rendering_hides_secrets_wherever_they_land(tmp_path: Path) -> None:
    text = changed("distro: rocky9", 'distro: rocky9\n      root_password_hash: "${env:HASH}"')
    text = changed("name: shop,", 'name: shop, description: "key ${env:TOKEN} here",', text)
    text = changed("memory: 2048", 'cpu: "${ref:metadata.description}"', text)
    text += 'hooks:\n  on_apply_start: [{ type: exec, command: "x --token ${env:TOKEN}" }]\n'

    shown = show(write(tmp_path, text), {"HASH": "$6$salt$hash", "TOKEN": "t0k3n-t0k3n"})

    assert "t0k3n" not in shown
    assert "$6$salt" not in shown
    assert "description: key *** here" in shown
    assert "root_password_hash: '***'" in shown


def test_a_secret_that_is_written_out_is_hidden_too(tmp_path: Path) -> None:
    text = changed("distro: rocky9", "distro: rocky9\n      root_password_hash: $6$lit$eral")
    text += "hooks:\n  on_apply_start: [{ type: webhook, url: 'https://h/t0k3n' }]\n"

    shown = show(write(tmp_path, text), {})

    assert "eral" not in shown
    assert "t0k3n" not in shown


def test_a_password_that_is_written_out_for_another_tool_is_hidden(tmp_path: Path) -> None:
    text = (
        ENV + "  databases: [{ kind: pg_database, sys_password: tiger, api_token: '${env:T}' }]\n"
    )

    shown = show(write(tmp_path, text), {})

    assert "tiger" not in shown
    assert "${env:T}" in shown


def test_a_public_key_is_shown(tmp_path: Path) -> None:
    assert "AAAAC3NzaC1lZDI1NTE5" in show(write(tmp_path), {})


def test_an_environment_does_not_show_its_secrets(tmp_path: Path) -> None:
    text = with_hash("${env:HASH}")
    text += 'hooks:\n  on_apply_start: [{ type: slack, url: "${env:HASH}", odd: "${env:HASH}" }]\n'
    text += '  on_vm_ready: [{ type: exec, command: "x ${env:HASH}", env: { A: "${env:HASH}" } }]\n'

    environment = load(tmp_path, text, {"HASH": "$6$t0k3n$t0k3n-t0k3n"})

    assert "t0k3n" not in repr(environment)
    assert "t0k3n" not in str(environment)


LETTERS = st.text(alphabet="abc")


@given(secret=st.text(alphabet="abc", min_size=4), before=LETTERS, after=LETTERS)
def test_masking_leaves_no_trace_of_a_secret(secret: str, before: str, after: str) -> None:
    secrets = Secrets()
    secrets.add(secret)

    assert secret not in secrets.mask(before + secret + after)
    assert secret not in repr(secrets)


@given(value=st.text(min_size=1), before=st.text(alphabet="ab -:/"), after=st.text(alphabet="ab "))
def test_any_value_of_a_variable_arrives_unchanged(value: str, before: str, after: str) -> None:
    tree = Item(f"{before}${{env:X}}{after}", Path("x.yaml"), 1, "key")

    Resolver(tree, {"X": value}, _no_generator, [], []).resolve()

    assert tree.value == before + value + after
    assert tree.masked == f"{before}***{after}"


@given(st.text(alphabet="ab${}:|evn "))
def test_no_text_breaks_the_reader_of_templates(text: str) -> None:
    tree = Item(text, Path("x.yaml"), 1, "key")
    faults: list[Fault] = []

    Resolver(tree, {}, _no_generator, faults, []).resolve()

    assert tree.broken == bool(faults)
    assert tree.broken or isinstance(tree.value, str)


def _no_generator(name: str) -> Generator:
    raise AssertionError(f"{name} generates nothing here")


def test_masking_hides_the_longer_of_two_secrets_first() -> None:
    secrets = Secrets()
    secrets.add("abcd")
    secrets.add("abcdefgh")

    assert secrets.mask("x abcdefgh y abcd z") == "x *** y *** z"


def test_a_short_secret_is_hidden_only_where_it_stands_alone() -> None:
    secrets = Secrets()
    secrets.add("1")

    assert secrets.mask("10.0.0.1") == "10.0.0.1"
    assert secrets.mask("1") == "***"
    assert secrets.mask("unknown zone '1'") == "unknown zone '***'"
