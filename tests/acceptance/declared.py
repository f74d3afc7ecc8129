"""The node of these tests as an operator would declare it, with the hardware of the machines."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.machine import MIRROR, Firmware

MACS = ("BC:24:11:00:0A:01", "BC:24:11:00:0A:02")
ADDRESS = "10.0.2.55"
USER = "ops"


def manifest(folder: Path, firmware: Firmware, root: str, key: str) -> Path:
    """A file that declares ``box``: two cards, a user, a package, and a disk to be left alone.

    ``root``: path on the mirror that only the preseed file can know; ``key``: public SSH key.
    """
    path = folder / f"{firmware}.yaml"
    path.write_text(f"""\
version: "1"
kind: Env
metadata: {{name: acceptance, domain: example.com}}
spec:
  hypervisor:
    kind: Hypervisor
    iso: {{storage: local, image: debian-12-acceptance.iso}}
    kickstart:
      distro: debian12
      install_url: http://{MIRROR}/{root}
      timezone: Asia/Tokyo
      ssh_keys: {{root: ["{key}"], {USER}: ["{key}"]}}
      additional_users: [{{name: {USER}, wheel: true}}]
      sudo: {{wheel_nopasswd: true}}
      packages: {{base: [tree]}}
    nodes:
      box:
        proxmox: {{node_name: pve1, vm_id: 101}}
        ips: {{public: {ADDRESS}}}
        resources: {{memory: 1024, bios: {firmware}}}
        nics:
          - {{name: net0, usage: public, network: public, mac: "{MACS[0]}"}}
          - {{name: net1, bridge: vmbr1, mac: "{MACS[1]}", bootproto: none}}
        disks:
          - {{id: 0, size: 8G, storage: local-lvm, role: root}}
          - {{id: 1, size: 1G, storage: local-lvm, role: data}}
  networks:
    kind: Networks
    public: {{cidr: 10.0.2.0/24, gateway: 10.0.2.2, dns: [10.0.2.3]}}
  storage_classes: {{kind: StorageClasses, fast: {{backend: local-lvm}}}}
""")
    return path
