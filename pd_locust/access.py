"""What every request carries besides its body: the key, the headers, and the trust in a certificate."""

from __future__ import annotations

import ssl

from pd_locust.errors import ConfigError


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
