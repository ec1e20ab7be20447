"""Where the service is, and what every request to it carries besides its body: key, headers, trust."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any
from urllib.parse import quote, urlsplit

from pd_locust.errors import ConfigError

_CHAT = "/chat/completions"
_VERSION = re.compile(r"/v\d+[a-z0-9]*$")
_DEFAULT_PORT = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`root` is the path under which the API lives, e.g. `/api/v1`; it has no trailing slash."""

    scheme: str
    host: str
    port: int
    root: str

    @classmethod
    def parse(cls, base_url: str) -> Endpoint:
        """Read `https://x/api`, `https://x/api/v1` and `https://x/api/v1/chat/completions` as the same service.

        A path that ends in a version (`/v1`, `/v3`, `/v1beta`) or in `/chat/completions` is taken at its
        word; anything else gets `/v1`. Raises ConfigError for what cannot be a Base URL, without repeating
        any credentials in it.
        """
        text = base_url.strip()
        if not text.isprintable() or any(character.isspace() for character in text):
            raise ConfigError(
                f"base URL {text!r}: white space or a control character inside; was more than the URL pasted?"
            )
        try:
            parts = urlsplit(text)
        except ValueError as error:
            raise ConfigError(f"base URL {text!r}: {error}") from None
        if parts.username is not None or parts.password is not None:
            raise ConfigError(
                "the base URL must not carry a user or password; give the key with --pd-api-key"
            )
        if parts.query or parts.fragment or text.endswith("?"):
            raise ConfigError(
                f"base URL {parts.scheme}://{parts.netloc}{parts.path}: no query string or fragment is accepted; "
                "give the part before '?'"
            )
        if parts.scheme not in _DEFAULT_PORT or not parts.hostname:
            raise ConfigError(
                f"base URL {text!r}: expected http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]"
            )
        try:
            port = _DEFAULT_PORT[parts.scheme] if parts.port is None else parts.port
            if port == 0:
                raise ValueError  # noqa: TRY301 - the same sentence as for a port that is no number
        except ValueError:
            raise ConfigError(f"base URL {text!r}: the port must be a number from 1 to 65535") from None
        try:
            host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
        except UnicodeError as error:
            raise ConfigError(f"base URL {text!r}: no host name ({error})") from None
        path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=-._~")
        root = path.removesuffix(_CHAT)
        if root == path and not _VERSION.search(path):
            root = f"{path}/v1"
        return cls(parts.scheme, host, port, root)

    @property
    def netloc(self) -> str:
        """Host and, unless it is the scheme's own, port; IPv6 in brackets. The Host header's value."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORT[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme and host, where /tokenize, /health and /metrics of the usual engines live."""
        return f"{self.scheme}://{self.netloc}"

    @property
    def base_url(self) -> str:
        """The normal form: what run.json and the reports show."""
        # Without a version in its path the root would be read back as needing one.
        return f"{self.origin}{self.root if _VERSION.search(self.root) else self.chat_path}"

    @property
    def chat_path(self) -> str:
        """Path of the streaming chat-completions call."""
        return f"{self.root}{_CHAT}"


def authorization(api_key: str | None) -> dict[str, str]:
    """Return the Authorization header, if there is a key."""
    if not api_key:
        return {}
    if not api_key.isascii() or any(character.isspace() for character in api_key):
        raise ConfigError(
            "the API key contains spaces or characters outside ASCII; was more than the key pasted?"
        )
    return {"Authorization": f"Bearer {api_key}"}


def streaming_headers(api_key: str | None, headers: dict[str, str]) -> dict[str, str]:
    """Headers of every streaming request; identity, because compression would hold chunks back."""
    own = {
        "User-Agent": "pd_locust",
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
    }
    return own | authorization(api_key) | headers


def tls_context(verify: bool) -> ssl.SSLContext:
    """Return the system's trust, or none at all for `--pd-insecure`."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


_LEAST_SECRET = 6


def secrets_of(api_key: str | None, headers: Mapping[str, str]) -> list[str]:
    """Return what a service may repeat and nobody else should see: the key; a header's value may be one as well."""
    return [text for text in (api_key, *headers.values()) if text and len(text) >= _LEAST_SECRET]


def conceal(value: Any, secrets: Iterable[str]) -> Any:
    """Return the same value with `***` for every secret in any of its texts.

    Services like to repeat a wrong key in their answer, and messages are shortened: a secret that was cut
    off by the shortening is found by its beginning.
    """
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = _without(value, secret)
        return value
    if isinstance(value, dict):
        return {key: conceal(part, secrets) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(conceal(part, secrets) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{part.name: conceal(getattr(value, part.name), secrets) for part in fields(value)}
        )
    return value


_LEAST_PIECE = 6


def _without(text: str, secret: str) -> str:
    text = text.replace(secret, "***")
    for length in range(len(secret) - 1, _LEAST_PIECE - 1, -1):
        if f"{secret[:length]}…" in text:
            return text.replace(f"{secret[:length]}…", "***…")
    return text
