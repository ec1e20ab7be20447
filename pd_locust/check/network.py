"""From a host name to a secured connection: each part on its own, so that each can be named."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any

from pd_locust.check.step import Step
from pd_locust.endpoint import Endpoint, tls_context
from pd_locust.stream import Category, Failure
from pd_locust.wire.connection import connect_failure

_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_USER_INFO = re.compile(r"^(\w+://)?.*@")


def proxies(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Proxy variables that are set, in both spellings, without the user and password in them."""
    names = (spelling for name in _PROXY_VARIABLES for spelling in (name, name.lower()))
    return {name: _USER_INFO.sub(r"\1***@", environ[name]) for name in names if environ.get(name)}


def environment() -> Step:
    """Name the proxy variables. They do nothing here, but curl or an SDK beside us may take another way."""
    found = proxies()
    if not found:
        return Step.ok("environment", "no proxy variables set")
    listed = ", ".join(f"{name}={value}" for name, value in found.items())
    seen = f"{listed}: pd_locust ignores proxies and connects directly; curl and SDKs on this machine may not"
    return Step.ok("environment", seen, facts={"proxies": found})


def resolve(endpoint: Endpoint) -> Step:
    """Ask the system's resolver."""
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        failure = connect_failure(error)
        advice = (failure.category.hint, f"is {endpoint.host!r} spelled right?", *_direct_only())
        return Step.failed("resolve", f"{endpoint.host} has no address", failure, *advice)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    return Step.ok("resolve", ", ".join(addresses), facts={"addresses": addresses})


def connect(endpoint: Endpoint, timeout_s: float) -> tuple[Step, socket.socket | None]:
    """Open a TCP connection to the first address that takes one."""
    try:
        sock = socket.create_connection((endpoint.host, endpoint.port), timeout_s)
    except OSError as error:
        failure = connect_failure(error)
        own = "is it listening on an address that this machine can reach, not only on its own localhost?"
        if failure.category is Category.CONNECT_TIMEOUT:
            own = f"not even a refusal came back within {timeout_s:g} s, so something drops the packets"
        seen = f"{endpoint.host} port {endpoint.port}"
        return Step.failed("connect", seen, failure, failure.category.hint, own, *_direct_only()), None
    return Step.ok("connect", " port ".join(str(part) for part in sock.getpeername()[:2])), sock


def _direct_only() -> tuple[str, ...]:
    names = [name for name in proxies() if not name.upper().startswith("NO_")]
    if not names:
        return ()
    return (f"{', '.join(names)} is set: a host that only the proxy reaches must be tested from behind it",)


def tls(endpoint: Endpoint, sock: socket.socket, *, verify: bool) -> Step:
    """Shake hands as the streams will, and show the certificate."""
    if endpoint.scheme != "https":
        return Step.skipped("tls", "plain HTTP, by the base URL")
    try:
        with tls_context(verify).wrap_socket(sock, server_hostname=endpoint.host) as secured:
            version = secured.version() or "TLS"
            names, certificate = secured.getpeercert() or {}, secured.getpeercert(binary_form=True)
    except (OSError, ValueError) as error:
        return _tls_failed(endpoint, error if isinstance(error, OSError) else ssl.SSLError(str(error)))
    return Step.ok("tls", f"{version}, {_certificate(names, certificate)}", facts={"tls_version": version})


def _certificate(names: Mapping[str, Any], certificate: bytes | None) -> str:
    if names:
        owner, issuer = _owner(names["subject"]), _owner(names["issuer"])
        return f"certificate of {owner}, issued by {issuer}, good until {names['notAfter']}"
    # Without verification the ssl module hands out the certificate's bytes only.
    digest = hashlib.sha256(certificate or b"").hexdigest()[:16]
    return f"certificate NOT verified (sha256 {digest}…)"


def _owner(parts: Any) -> str:
    named = dict(pair for group in parts for pair in group)
    return str(named.get("commonName") or named.get("organizationName") or "nobody named")


_BY_VERIFY_CODE = {
    9: "the certificate is not valid yet: is this machine's clock right?",
    10: "the certificate has expired: renew it on the server, and check this machine's clock",
    18: "the certificate is self-signed: --pd-insecure, or SSL_CERT_FILE=its.pem to trust this one",
    19: "a private CA signed it: SSL_CERT_FILE=ca.pem to trust that CA, or --pd-insecure",
    20: "its CA is not known here: SSL_CERT_FILE=ca.pem, or the server must send an intermediate one too",
    62: "the certificate is for another name: use a host name that it names, not an IP address or an alias",
    64: "the certificate does not name this IP address: use a host name that it names",
}


def _tls_failed(endpoint: Endpoint, error: OSError) -> Step:
    failure = connect_failure(error)
    seen = "the handshake failed"
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _BY_VERIFY_CODE.get(error.verify_code, "--pd-insecure goes on without verification")
        return Step.failed("tls", seen, failure, advice)
    failure = Failure(Category.TLS, failure.message)
    if _answers_plain_http(endpoint):
        return Step.failed(
            "tls",
            f"port {endpoint.port} speaks plain HTTP",
            failure,
            f"the base URL should begin with http://: http://{endpoint.netloc}{endpoint.root}",
        )
    return Step.failed("tls", seen, failure, failure.category.hint)


_PROBE_S = 3.0


def _answers_plain_http(endpoint: Endpoint) -> bool:
    try:
        with socket.create_connection((endpoint.host, endpoint.port), _PROBE_S) as sock:
            sock.sendall(f"HEAD / HTTP/1.1\r\nHost: {endpoint.netloc}\r\nConnection: close\r\n\r\n".encode())
            return sock.recv(16).startswith(b"HTTP/")
    except OSError:
        return False


def answers_tls(endpoint: Endpoint) -> bool:
    """Whether a TLS handshake succeeds at this port, trusted or not."""
    try:
        with (
            socket.create_connection((endpoint.host, endpoint.port), _PROBE_S) as sock,
            tls_context(verify=False).wrap_socket(sock, server_hostname=endpoint.host),
        ):
            return True
    except (OSError, ValueError):
        return False
