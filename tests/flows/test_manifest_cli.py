"""``python -m flows.manifest``: exit codes, what goes where, and that it starts quickly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.manifest import main

ROOT = Path(__file__).parents[2]
LAB = ROOT / "deployments" / "environments" / "lab" / "env.yaml"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "env.yaml"
    path.write_text('version: "1"\nkind: Env\nmetadata: { nam: x }\nspec: {}\n')
    return path


def test_valid_files_end_with_0_and_say_what_they_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(LAB)]) == 0

    assert "shop is valid, 3 guests" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("clones", "words"),
    [(0, "1 template"), (1, "1 template, 1 clone"), (2, "1 template, 2 clones")],
)
def test_a_template_is_counted_apart_from_its_clones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clones: int, words: str
) -> None:
    path = tmp_path / "golden.yaml"
    entries = [{"name": f"db{number}", "vm_id": 300 + number} for number in range(clones)]
    YAML().dump(
        {
            "version": "1",
            "kind": "Template",
            "metadata": {"name": "golden"},
            "spec": {"node": "pve1", "vm_id": 9000, "image": "debian13", "clones": entries},
        },
        path,
    )

    assert main(["validate", str(path)]) == 0

    assert capsys.readouterr().out.splitlines()[0].endswith(f": golden is valid, {words}")


@pytest.mark.parametrize("there", [True, False])
def test_an_image_that_is_not_on_this_machine_is_a_note_of_validation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    path, image = tmp_path / "golden.yaml", tmp_path / "golden.qcow2"
    spec = {"node": "pve1", "vm_id": 9000, "image": {"path": image.name}}
    document = {"version": "1", "kind": "Template", "metadata": {"name": "golden"}, "spec": spec}
    YAML().dump(document, path)
    if there:
        image.touch()

    assert main(["validate", str(path)]) == 0

    assert (f"{image} is no file on this machine" in capsys.readouterr().out) is not there


def test_faults_end_with_2_and_go_to_standard_error(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(LAB), str(broken)]) == 2

    said = capsys.readouterr()
    assert "shop is valid" in said.out
    assert f"{broken}:3: metadata.nam: unknown key 'nam'; did you mean 'name'?" in said.err
    assert f"{broken}:4: spec.networks: is missing" in said.err
    assert "Traceback" not in said.err


def test_validation_as_json_is_one_document(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(LAB), str(broken), "--json"]) == 2

    good, bad = json.loads(capsys.readouterr().out)
    assert (good["valid"], good["guests"]) == (True, ["db1", "app1", "web1"])
    assert bad["valid"] is False
    assert bad["faults"][0]["line"] == 3


def test_rendering_is_yaml_with_layers_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(LAB)]) == 0

    document = YAML(typ="safe", pure=True).load(capsys.readouterr().out)
    assert document["spec"]["networks"]["public"]["cidr"] == "10.20.0.0/24"
    assert document["spec"]["hypervisor"]["nodes"]["app1"]["resources"]["cores"] == 2
    assert "guests" not in document


def test_rendering_shows_guests_and_json_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(LAB), "--guests", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert [guest["label"] for guest in document["guests"]] == ["db1", "app1", "web1"]
    assert document["guests"][0]["source"]["installation"]["distro"] == "rocky9"


def test_rendering_what_is_broken_ends_with_2(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", str(broken)]) == 2

    assert capsys.readouterr().out == ""


def test_a_rendering_loads_again_and_gives_the_same_guests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from blocks.manifest.loader import load_environment

    main(["render", str(LAB)])
    again = tmp_path / "env.yaml"
    again.write_text(capsys.readouterr().out)

    assert load_environment(again).guests == load_environment(LAB).guests


def test_a_schema_is_printed_by_kind_whatever_its_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "hypervisor"]) == 0

    assert "nodes" in json.loads(capsys.readouterr().out)["properties"]


def test_kinds_are_listed_and_an_unknown_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert main(["schema", "Evn"]) == 2

    said = capsys.readouterr()
    assert said.out.splitlines()[:2] == ["Env", "Hypervisor"]
    assert "did you mean 'Env'?" in said.err


@pytest.mark.parametrize("arguments", [["validate"], ["nonsense"], ["render", "--odd", "x"]])
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    said = capsys.readouterr()
    assert "--help" in said.err
    assert "Traceback" not in said.err


def test_it_runs_as_a_module_without_prefect() -> None:
    program = (
        "import sys; from flows.manifest import main; code = main(['validate', sys.argv[1]])\n"
        "heavy = {'prefect', 'requests', 'proxmoxer', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(code or (f'imported: {heavy}' if heavy else 0))"
    )

    run = subprocess.run(
        [sys.executable, "-c", program, str(LAB)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (run.returncode, run.stderr) == (0, "")


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    run = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m flows.manifest render {LAB} | head -1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert run.stdout == "version: '1'\n"
    assert "Traceback" not in run.stderr
