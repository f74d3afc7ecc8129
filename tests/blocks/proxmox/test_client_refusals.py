"""Texts as recorded from a Proxmox VE 9.2 server; the scenario is named beside each."""

import pickle

import pytest

from blocks.proxmox import errors
from blocks.proxmox.refusals import refusal, understand


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Configuration file 'nodes/pve1/qemu-server/1999.conf' does not exist", errors.NotFound),
        ("unable to find configuration file for VM 1100 on node 'pve1'", errors.NotFound),  # 07
        ("storage 'nosuch' does not exist", errors.NotFound),  # 01
        ("no such cluster node 'other'", errors.NotFound),  # 07
        (
            "hostname lookup 'other' failed - failed to get address info for: other: "
            "Name or service not known",
            errors.NotFound,
        ),  # 02
        ("volume_size_info on 'local:iso/none.iso' failed - no format", errors.NotFound),  # 03
        ("no such logical volume pve/vm-1300-disk-9", errors.NotFound),  # 13
        ("unable to create VM 1001 - VM 1001 already exists on node 'pve1'", errors.AlreadyExists),
        ("unable to create VM 1100: config file already exists", errors.AlreadyExists),  # 07
        ("CT 1001 already exists on node 'pve1'", errors.AlreadyExists),  # 09
        ("refusing to override existing file '/x/a.iso'", errors.AlreadyExists),  # 04
        ("snapshot name 'clean' already used", errors.AlreadyExists),  # 08
        ("VM 1210 not running", errors.WrongState),  # 10b
        ("CT 1210 already running", errors.WrongState),  # 09
        ("VM 1210 is running - destroy failed", errors.WrongState),  # 05
        ("checksum mismatch (file change by other user?)", errors.Conflict),  # 05
        ("only root can set 'lock' config", errors.PermissionDenied),  # 10b
        ("Only root can pass arbitrary filesystem paths. at x line 1.", errors.PermissionDenied),
        ("cluster not ready - no quorum?", errors.Unreachable),
    ],
)
def test_a_text_becomes_the_error_that_callers_ask_for(
    text: str, kind: type[errors.ProxmoxError]
) -> None:
    assert type(refusal(500, text)) is kind
    assert refusal(500, text).message == text


@pytest.mark.parametrize(
    "text",
    [
        "invalid bootorder: device 'scsi5' does not exist'",  # 02
        "VM quit/powerdown failed - got timeout",  # 05b: no file lock
        "storage 'local2' does not support 'iso' content",  # 03
        "no options specified",  # 02
        "checksum mismatch: got 'aa' != expect 'bb'",  # 03
    ],
)
def test_other_texts_stay_plain_errors_that_no_repetition_cures(text: str) -> None:
    error = refusal(500, text + "\n")
    assert type(error) is errors.ProxmoxError
    assert (error.message, error.transient) == (text, False)


def test_a_file_lock_passes_and_a_guest_lock_does_not() -> None:
    file_lock = refusal(500, "can't lock file '/var/lock/qemu-server/lock-1200.conf' - got timeout")
    storage_lock = refusal(500, "cfs-lock 'storage-nfs' error: got lock request timeout")
    guest_lock = refusal(500, "VM is locked (snapshot-delete)")
    assert isinstance(file_lock, errors.Locked)
    assert isinstance(storage_lock, errors.Locked)
    assert isinstance(guest_lock, errors.Locked)
    assert (file_lock.transient, file_lock.lock) == (True, None)
    assert (storage_lock.transient, storage_lock.lock) == (True, None)
    assert (guest_lock.transient, guest_lock.lock) == (False, "snapshot-delete")
    assert "qm unlock" in str(guest_lock.advice)


def test_a_missing_right_names_privileges_and_path() -> None:
    error = refusal(403, "Permission check failed (/vms/1020, VM.Config.Disk|VM.Config.CDROM)\n")
    assert isinstance(error, errors.PermissionDenied)
    assert error.path == "/vms/1020"
    assert error.privileges == ("VM.Config.Disk", "VM.Config.CDROM")
    assert "VM.Config.Disk or VM.Config.CDROM on /vms/1020" in str(error.advice)


def test_a_missing_right_that_the_server_does_not_name_says_so() -> None:
    error = refusal(403, "Permission check failed")
    assert isinstance(error, errors.PermissionDenied)
    assert (error.path, error.privileges) == (None, ())


def test_what_only_root_may_is_told_apart() -> None:
    text = (
        "Permission check failed (changing feature flags (except nesting) is only allowed for "
        "root@pam)"
    )
    error = refusal(403, text)
    assert isinstance(error, errors.PermissionDenied)
    assert error.path is None
    assert "no API token" in str(error.advice)


def test_a_missing_pool_is_not_found_although_the_server_says_403() -> None:
    error = refusal(403, "Permission check failed (pool 'nopool' does not exist)")
    assert isinstance(error, errors.NotFound)


def test_bad_parameters_are_listed_by_name_on_one_line_each() -> None:
    reasons = {
        "name": "invalid format - value does not look like a valid DNS name\n",
        "memory": "invalid format - format error\nmemory.current: value must be 16\n",
    }
    error = refusal(400, "Parameter verification failed.", reasons)
    assert isinstance(error, errors.InvalidParameter)
    assert (
        error.fields["memory"] == "invalid format - format error memory.current: value must be 16"
    )
    assert error.message.startswith("memory: invalid format")
    assert "; name: invalid format" in error.message


@pytest.mark.parametrize(
    ("reasons", "kind"),
    [
        ({"vmid": "VM 1001 already exists"}, errors.AlreadyExists),  # 01
        ({"storage": "No such storage."}, errors.NotFound),  # 01
        ({"upid": "no such task"}, errors.NotFound),  # 10
        ({"iface": "interface does not exist"}, errors.NotFound),  # 01
        ({"skiplock": "Only root may use this option."}, errors.PermissionDenied),  # 10b
    ],
)
def test_a_parameter_refused_for_what_exists_or_not_is_that_error(
    reasons: dict[str, str], kind: type[errors.ProxmoxError]
) -> None:
    assert type(refusal(400, "Parameter verification failed.", reasons)) is kind


def test_a_bare_400_still_is_a_refused_parameter() -> None:
    assert isinstance(refusal(400, "Bad Request"), errors.InvalidParameter)


@pytest.mark.parametrize(
    ("status", "unknown"), [(595, False), (596, True), (502, True), (503, True), (504, True)]
)
def test_a_proxy_without_an_answer_is_transient_and_only_595_surely_did_nothing(
    status: int, unknown: bool
) -> None:
    error = refusal(status, "No route to host")
    assert isinstance(error, errors.Unreachable)
    assert (error.transient, error.effect_unknown) == (True, unknown)


def test_501_404_and_401_have_errors_of_their_own() -> None:
    assert isinstance(refusal(501, "Method 'GET /foo' not implemented"), errors.NotSupported)
    assert isinstance(refusal(404, "Not Found"), errors.NotProxmox)
    assert isinstance(refusal(401, "No ticket"), errors.AuthenticationFailed)


@pytest.mark.parametrize(
    ("text", "configured"),
    [("No QEMU guest agent configured", False), ("QEMU guest agent is not running", True)],
)
def test_the_agent_that_is_not_set_up_differs_from_the_one_that_is_silent(
    text: str, configured: bool
) -> None:
    error = understand(text)
    assert isinstance(error, errors.AgentUnavailable)
    assert error.configured is configured


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidParameter("m", fields={"a": "b"}, advice="x"),
        errors.PermissionDenied("m", privileges=["VM.Audit"], path="/vms/1"),
        errors.Locked("m", lock="backup"),
        errors.Locked("m"),
        errors.Unreachable("m", effect_unknown=True),
        errors.TaskFailed("UPID:x", "broken", ["a"], reason=errors.Locked("m")),
        errors.TaskTimeout("UPID:x", 3.0, advice="wait"),
        errors.BadSettings(["a", "b"]),
    ],
)
def test_errors_cross_a_process_border_whole(error: errors.ProxmoxError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.transient == error.transient
    assert copy.advice == error.advice
    assert copy.__dict__.keys() == error.__dict__.keys()


def test_a_failed_task_says_its_status_its_last_lines_and_why() -> None:
    reason = errors.Locked("can't lock file 'x' - got timeout", advice="wait")
    error = errors.TaskFailed(
        "UPID:x", "can't lock file", ["copying", "TASK ERROR: can't lock file"], reason=reason
    )
    assert str(error) == "can't lock file\n  | copying"
    assert error.transient
    assert error.advice == "wait"
