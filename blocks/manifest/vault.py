"""Reads a secret from HashiCorp Vault, key/value engine version 2."""

from __future__ import annotations

from collections.abc import Mapping


class VaultTrouble(Exception):
    """Why there is no secret. Never holds one."""


class Vault:
    """A reader for the server in ``VAULT_ADDR``, with the token in ``VAULT_TOKEN``.

    ``VAULT_NAMESPACE`` and ``VAULT_CACERT`` are honoured. Each path is read once.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._address = env.get("VAULT_ADDR", "").rstrip("/")
        self._token = env.get("VAULT_TOKEN", "")
        self._namespace = env.get("VAULT_NAMESPACE", "")
        self._ca = env.get("VAULT_CACERT", "")
        self._read: dict[str, dict[str, object] | VaultTrouble] = {}

    @property
    def configured(self) -> bool:
        """Whether both address and token are known."""
        return bool(self._address and self._token)

    def get(self, path: str, key: str) -> str:
        """The value of ``key`` at ``path``, such as ``secret/data/db``. Raises VaultTrouble.

        ``data`` after the name of the engine may be left out.
        """
        engine, _, rest = path.strip("/").partition("/")
        if not rest or not key:
            raise VaultTrouble(
                "needs engine, path and key, such as ${vault:secret/data/db#password}"
            )
        api_path = f"{engine}/{rest}" if rest.startswith("data/") else f"{engine}/data/{rest}"
        if api_path not in self._read:
            try:
                self._read[api_path] = self._fetch(api_path)
            except VaultTrouble as trouble:
                self._read[api_path] = trouble
        found = self._read[api_path]
        if isinstance(found, VaultTrouble):
            raise VaultTrouble(str(found))
        if found.get(key) is None:
            raise VaultTrouble(f"Vault has no key {key!r} at {path}")
        return str(found[key])

    def _fetch(self, api_path: str) -> dict[str, object]:
        import requests

        headers = {"X-Vault-Token": self._token, "X-Vault-Request": "true"}
        if self._namespace:
            headers["X-Vault-Namespace"] = self._namespace
        try:
            answer = requests.get(
                f"{self._address}/v1/{api_path}",
                headers=headers,
                timeout=(3.05, 10),
                verify=self._ca or True,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            raise VaultTrouble(
                f"Vault at {self._address} does not answer ({type(error).__name__})"
            ) from None
        if answer.status_code == 404:
            raise VaultTrouble(f"Vault has nothing at {api_path}")
        if answer.status_code == 403:
            raise VaultTrouble(f"Vault does not let this token read {api_path}")
        if answer.status_code != 200:
            raise VaultTrouble(f"Vault answered {answer.status_code} for {api_path}")
        try:
            data = answer.json()["data"]["data"]
        except (ValueError, KeyError, TypeError):
            data = None
        if not isinstance(data, dict):
            raise VaultTrouble(f"Vault holds no version 2 secret at {api_path}")
        return data
