"""Ask the service for its models and count prompts with its own tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from pd_locust.endpoint import Endpoint, tls_context
from pd_locust.errors import ConfigError
from pd_locust.stream import Category, Failure
from pd_locust.wire.chat import one_line, status_failure

_TIMEOUT_S = (10, 180)  # connect, read: a 20,000-token prompt may wait in a queue
_MODELS_TIMEOUT_S = (10, 20)


@dataclass(frozen=True, slots=True)
class ModelList:
    """What `/models` answered. `ids` is None where there is no such list, which many routers have not."""

    url: str
    status: int | None = None
    content_type: str = ""
    ids: tuple[str, ...] | None = None
    failure: Failure | None = None


class ControlPlane:
    """Ordinary requests to the service under test; they ignore proxy variables, as the streams do."""

    def __init__(self, endpoint: Endpoint, headers: dict[str, str], *, verify: bool = True) -> None:
        self.endpoint = endpoint
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update(headers)
        self._session.verify = verify
        if not verify:
            # Said once by whoever asked for it, not again on stderr for every request.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._session.mount("https://", _SystemTrust(verify))

    def models(self, base_url: str | None = None) -> ModelList:
        """Ask for the model list, here or under another base URL. Never raises: no list is an answer, too."""
        url = f"{base_url or self.endpoint.origin + self.endpoint.root}/models"
        try:
            response = self._session.get(url, timeout=_MODELS_TIMEOUT_S, allow_redirects=False)
        except requests.exceptions.RequestException as error:
            return ModelList(url, failure=Failure(Category.RESET, one_line(_reason(error))))
        content_type = response.headers.get("Content-Type", "").partition(";")[0]
        if response.status_code != requests.codes.ok:
            failure = status_failure(response.status_code, response.content)
            return ModelList(url, response.status_code, content_type, failure=failure)
        # By its content: SGLang's router labels its list text/plain.
        return ModelList(url, response.status_code, content_type, _ids(response))

    def count_by_usage(self, body: dict[str, Any]) -> int | None:
        """`usage.prompt_tokens` of a one-token answer to this body; None when the service reports none.

        Raises ConfigError, with the likely cause, when the service refuses.
        """
        url = f"{self.endpoint.origin}{self.endpoint.chat_path}"
        response = self._call("POST", url, {**body, "max_tokens": 1, "stream": False})
        if not response.ok:
            failure = status_failure(response.status_code, response.content)
            raise ConfigError(
                f"{self.endpoint.base_url} refuses a request ({failure}); {failure.category.hint}"
            )
        document = _json(response)
        usage = document.get("usage") if isinstance(document, dict) else None
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    def count_by_tokenizer(self, model: str, messages: list[dict[str, str]]) -> int | None:
        """Tokens counted by vLLM's `/tokenize`, chat template included; None where there is none."""
        response = self._call(
            "POST", f"{self.endpoint.origin}/tokenize", {"model": model, "messages": messages}
        )
        document = _json(response) if response.ok else None
        count = document.get("count") if isinstance(document, dict) else None
        return count if isinstance(count, int) and count > 0 else None

    def _call(self, method: str, url: str, body: dict[str, Any]) -> requests.Response:
        try:
            return self._session.request(method, url, json=body, timeout=_TIMEOUT_S)
        except requests.exceptions.SSLError as error:
            raise ConfigError(
                f"{self.endpoint.base_url}: TLS failed ({_reason(error)}); {_TLS_HINT}"
            ) from None
        except requests.exceptions.ConnectionError as error:
            raise ConfigError(
                f"{self.endpoint.base_url}: no connection ({_reason(error)}); is the server up, "
                "is the address right?"
            ) from None
        except requests.exceptions.RequestException as error:
            raise ConfigError(f"{self.endpoint.base_url}: {type(error).__name__} on {method} {url}") from None


class _SystemTrust(HTTPAdapter):
    """Trusts what the streams trust (the system, SSL_CERT_FILE); requests alone knows only its own bundle."""

    def __init__(self, verify: bool) -> None:
        self._context = tls_context(verify)
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options, ssl_context=self._context)


_TLS_HINT = "use --pd-insecure for a self-signed certificate, or http:// if the port speaks plain HTTP"


def _reason(error: Exception) -> str:
    """Return the innermost cause in a few words; requests wraps it in three layers of repr."""
    cause: BaseException = error
    while True:
        inner = getattr(cause, "reason", None) or cause.__cause__ or cause.__context__
        if not isinstance(inner, BaseException):
            break
        cause = inner
    text = str(cause)
    return text.rsplit(": ", 1)[-1].strip("'\")( ") or type(cause).__name__


def _json(response: requests.Response) -> Any:
    """Return the document; None for what is none, such as a portal's page or a stream nobody asked for."""
    try:
        return response.json()
    except requests.exceptions.JSONDecodeError:
        return None


def _ids(response: requests.Response) -> tuple[str, ...] | None:
    try:
        document = response.json()
    except requests.exceptions.JSONDecodeError:
        return None
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return None
    return tuple(str(entry["id"]) for entry in entries if isinstance(entry, dict) and entry.get("id"))
