"""How faults of an environment are said: with their place, and without a secret."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from blocks.manifest.faults import Fault, ManifestError
from blocks.manifest.loader import load_environment
from tests.blocks.manifest.sample import (
    KEY,
    changed,
    faults_of,
    line_of,
    only_fault,
    write,
)


def test_a_fault_reads_as_file_line_key_problem_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = changed("network: public", "network: publik")

    fault = only_fault(tmp_path, text)

    line = line_of(text, "publik")
    assert str(fault) == (
        f"env.yaml:{line}: spec.hypervisor.nodes.db1.nics[0].network: unknown zone 'publik'; "
        "did you mean 'public'? (zones: private, public)"
    )


def test_a_private_key_is_refused_with_its_own_words_and_never_repeated(tmp_path: Path) -> None:
    secret = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0c2VjcmV0\n"
    (tmp_path / "id").write_text(secret)
    from_file = only_fault(tmp_path, changed(f'"{KEY}"', "./id"))
    inline = only_fault(tmp_path, changed(f'"{KEY}"', repr(secret).replace("'", '"')))

    assert "the key file ./id is a private key; name its public half" in str(from_file)
    assert "is a private key" in str(inline)
    assert "c2VjcmV0" not in str(from_file) + str(inline)


def test_a_secret_value_is_in_no_fault(tmp_path: Path) -> None:
    text = changed("network: public", 'network: "${env:ZONE}"')
    text = changed("size: 32G", 'size: "${env:SIZE}"', text)
    text = changed("cores: 2", 'bios: "${env:BIOS}"', text)
    env = {"ZONE": "s3cr3t-zone", "SIZE": "s3cr3t-size", "BIOS": "s3cr3t-bios"}

    error = "\n".join(map(str, faults_of(write(tmp_path, text), env)))

    assert "s3cr3t" not in error
    assert "unknown zone '***'" in error
    assert "'***' is no size" in error


def test_a_value_under_the_wrong_key_is_not_repeated(tmp_path: Path) -> None:
    text = changed("memory: 2048", "memory: hunter2hunter2")

    assert "hunter2" not in str(only_fault(tmp_path, text))


def test_a_manifest_error_survives_pickling() -> None:
    error = ManifestError((Fault(file="a", line=1, key="b", problem="c", remedy="d"),))

    again = pickle.loads(pickle.dumps(error))

    assert str(again) == str(error) == "a:1: b: c; d"


def test_the_sample_itself_has_no_fault(tmp_path: Path) -> None:
    assert len(load_environment(write(tmp_path), env={}).guests) == 2
