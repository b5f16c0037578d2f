"""Small files in an object store that several processes change, each on top of the other's change.

Lance writes whole datasets and has no such file, so these are written through `obstore`, with the
conditions that the stores have for it: `If-None-Match` and `If-Match`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from phalanx.storage.location import Location
from phalanx.storage.object_store import STORES

#: How long a request may take, and how long it may take to connect. It is not repeated.
_TIMEOUT, _CONNECT_TIMEOUT = "5s", "2s"

#: The storage options that reach and open a store, by its scheme. `obstore` refuses names that it
#: does not know, and Lance ignores them.
_OPTIONS = {
    "s3": {
        "access_key_id",
        "secret_access_key",
        "session_token",
        "token",
        "region",
        "default_region",
        "endpoint",
        "endpoint_url",
        "virtual_hosted_style_request",
        "skip_signature",
        "unsigned_payload",
        "request_payer",
        "imdsv1_fallback",
        "metadata_endpoint",
        "container_credentials_relative_uri",
        "container_credentials_full_uri",
        "container_authorization_token_file",
        "role_arn",
        "role_session_name",
        "web_identity_token_file",
        "server_side_encryption",
        "sse_kms_key_id",
        "sse_bucket_key_enabled",
        "sse_customer_key_base64",
    },
    "gs": {
        "service_account",
        "service_account_path",
        "service_account_key",
        "application_credentials",
        "bearer_token",
        "base_url",
        "skip_signature",
    },
    "az": {
        "account_name",
        "account_key",
        "access_key",
        "master_key",
        "client_id",
        "client_secret",
        "tenant_id",
        "authority_id",
        "authority_host",
        "sas_key",
        "sas_token",
        "bearer_token",
        "token",
        "use_emulator",
        "endpoint",
        "use_fabric_endpoint",
        "use_azure_cli",
        "skip_signature",
        "msi_endpoint",
        "object_id",
        "msi_resource_id",
        "federated_token_file",
    },
}
#: What the names of options may begin with.
_PREFIXES = ("aws_", "google_", "azure_storage_", "azure_")
#: What variables of the environment may begin with, by the scheme of the store.
_VARIABLES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
#: A token of Google's, by the name that only Lance has for it. There it counts before all others.
_TOKEN = "google_storage_token"
#: The options that say how to connect, in any store. `obstore` reads all variables by itself but
#: those for these.
_CLIENT_OPTIONS = {
    "allow_http",
    "allow_invalid_certificates",
    "proxy_url",
    "proxy_ca_certificate",
    "proxy_excludes",
}


class Unavailable(Exception):
    """The file cannot be read or written: the store refuses, does not answer, or cannot do it."""


@dataclass(frozen=True)
class Content:
    """What a file holds, and what identifies that."""

    data: bytes
    tag: Mapping[str, str]


class SharedFile:
    """A small file in the folder of a table, which may not exist yet.

    The methods raise Unavailable wherever the store does not do as asked. The error has no text:
    texts of a store may show what is secret.
    """

    def __init__(self, location: Location, name: str) -> None:
        self._location, self._name = location, name

    @staticmethod
    def is_possible(location: Location) -> bool:
        """Whether a table is in a store that has such files."""
        return location.uri.partition("://")[0] in STORES

    def read(self) -> Content | None:
        """What the file holds now; None if it does not exist."""
        try:
            found = self._store.get(self._name)
            return Content(bytes(found.bytes()), _tag(found.meta))
        except FileNotFoundError:
            return None
        except Exception:
            raise Unavailable from None

    def write(self, data: bytes, over: Content | None) -> Content | None:
        """Write the file if it still holds `over`, or still does not exist if that is None.

        Returns what it holds then; None if another process came first.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            mode = "create" if over is None else over.tag
            return Content(data, _tag(self._store.put(self._name, data, mode=mode)))
        except (AlreadyExistsError, PreconditionError):
            return None
        except FileNotFoundError:
            if over is None:  # there is no such bucket
                raise Unavailable from None
            return None
        except Exception as error:
            # Of two writes at the same moment, S3 refuses one with this status.
            if "409 Conflict" in str(error):
                return None
            raise Unavailable from None

    @cached_property
    def _store(self) -> Any:
        # Only writers that meet others in an object store need it, so it is loaded here.
        from obstore import store

        scheme = self._location.uri.partition("://")[0]
        config: dict[str, str] = {}
        client: dict[str, Any] = {"timeout": _TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT}
        for name in _CLIENT_OPTIONS:
            for variable in (name.upper(), _VARIABLES[scheme] + name.upper()):
                if variable in os.environ:
                    client[name] = os.environ[variable]
        options = self._location.options or {}
        for option, value in options.items():
            name = option.lower()
            for prefix in _PREFIXES:
                name = name.removeprefix(prefix)
            if name in _CLIENT_OPTIONS:
                client[name] = value
            elif name in _OPTIONS[scheme]:
                config[name] = value
        token = options.get(_TOKEN, os.environ.get(_TOKEN.upper()))
        if scheme == "gs" and token:
            config["bearer_token"] = token
        open_store: Any = store.from_url
        return open_store(
            self._location.uri,
            config=config,
            client_options=client,
            retry_config={"max_retries": 0},
        )


def _tag(meta: Mapping[str, Any]) -> dict[str, str]:
    """What identifies a version of a file. Raises Unavailable if the store does not say."""
    tag = {name: meta[name] for name in ("e_tag", "version") if meta.get(name)}
    if not tag:
        raise Unavailable
    return tag
