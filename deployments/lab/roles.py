"""The built-in privileges and roles, as a Proxmox VE 9.2 server lists them (scenario 01)."""

from __future__ import annotations

_DATASTORE = ["Allocate", "AllocateSpace", "AllocateTemplate", "Audit"]
_SYS = ["AccessNetwork", "Audit", "Console", "Incoming", "Modify", "PowerMgmt", "Syslog"]
_CONFIG = ["CDROM", "CPU", "Cloudinit", "Disk", "HWType", "Memory", "Network", "Options"]
_AGENT = ["Audit", "FileRead", "FileSystemMgmt", "FileWrite", "Unrestricted"]

VM_CONFIG_ANY = (
    "VM.Config.Disk",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.HWType",
    "VM.Config.Options",
    "VM.Config.Cloudinit",
)

PRIVILEGES = sorted(
    [f"Datastore.{word}" for word in _DATASTORE]
    + [f"Sys.{word}" for word in _SYS]
    + [f"VM.Config.{word}" for word in _CONFIG]
    + [f"VM.GuestAgent.{word}" for word in _AGENT]
    + ["VM.Allocate", "VM.Audit", "VM.Backup", "VM.Clone", "VM.Console", "VM.Migrate"]
    + ["VM.PowerMgmt", "VM.Replicate", "VM.Snapshot", "VM.Snapshot.Rollback"]
    + ["Group.Allocate", "Mapping.Audit", "Mapping.Modify", "Mapping.Use", "Permissions.Modify"]
    + ["Pool.Allocate", "Pool.Audit", "Realm.Allocate", "Realm.AllocateUser"]
    + ["SDN.Allocate", "SDN.Audit", "SDN.Use", "User.Modify"]
)

_AUDIT = [
    "Datastore.Audit",
    "Mapping.Audit",
    "Pool.Audit",
    "SDN.Audit",
    "Sys.Audit",
    "VM.Audit",
    "VM.GuestAgent.Audit",
]
_VM_USER = [
    "VM.Audit",
    "VM.Backup",
    "VM.Config.CDROM",
    "VM.Config.Cloudinit",
    "VM.Console",
    "VM.PowerMgmt",
]
_VM_ALL = [priv for priv in PRIVILEGES if priv.startswith("VM.")]

ROLES: dict[str, list[str]] = {
    "Administrator": PRIVILEGES,
    "NoAccess": [],
    "PVEAdmin": [
        p
        for p in PRIVILEGES
        if p not in ("Permissions.Modify", "Sys.Modify", "Sys.PowerMgmt", "Realm.Allocate")
    ],
    "PVEAuditor": _AUDIT,
    "PVEDatastoreAdmin": [p for p in PRIVILEGES if p.startswith("Datastore.")],
    "PVEDatastoreUser": ["Datastore.AllocateSpace", "Datastore.Audit"],
    "PVEPoolAdmin": ["Pool.Allocate", "Pool.Audit"],
    "PVEPoolUser": ["Pool.Audit"],
    "PVESDNUser": ["SDN.Audit", "SDN.Use"],
    "PVESysAdmin": ["Sys.Audit", "Sys.Console", "Sys.Syslog"],
    "PVETemplateUser": ["VM.Audit", "VM.Clone"],
    "PVEVMAdmin": _VM_ALL,
    "PVEVMUser": _VM_USER,
}
