"""Where the service is: one Base URL in any of the forms that people paste, read to one meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass
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
