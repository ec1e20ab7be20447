"""Ask the service for its models and count prompts with its own tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests

from pd_locust.errors import ConfigError
from pd_locust.wire.chat import body_message, status_failure

if TYPE_CHECKING:
    from pd_locust.endpoint import Endpoint

_TIMEOUT_S = (10, 180)  # connect, read: a 20,000-token prompt may wait in a queue


class ControlPlane:
    """Ordinary requests to the service under test. Proxy variables are ignored, as the streams ignore them."""

    def __init__(self, endpoint: Endpoint, headers: dict[str, str], *, verify: bool = True) -> None:
        self.endpoint = endpoint
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update(headers)
        self._session.verify = verify

    def models(self) -> list[str] | None:
        """IDs in `/v1/models`, or None where there is no such list (many routers have none)."""
        response = self._call("GET", f"{self.endpoint.base_url}/models")
        if response.status_code != requests.codes.ok:
            return None
        document = _json(response)
        entries = document.get("data") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            return None
        return [str(entry["id"]) for entry in entries if isinstance(entry, dict) and entry.get("id")]

    def resolve_model(self, model: str | None) -> str:
        """Return the model ID to send: the one given, or the only one that the service lists."""
        if model:
            return model
        models = self.models()
        if models is None:
            raise ConfigError(
                f"no model ID given and {self.endpoint.base_url}/models lists none; give it with --pd-model"
            )
        if len(models) != 1:
            listed = ", ".join(models[:8]) or "nothing"
            raise ConfigError(f"{self.endpoint.base_url} serves {listed}; choose one with --pd-model")
        return models[0]

    def chat_once(self, body: dict[str, Any]) -> requests.Response:
        """Send one chat completion that is answered in one piece."""
        return self._call("POST", f"{self.endpoint.origin}{self.endpoint.chat_path}", body)

    def count_by_usage(self, body: dict[str, Any]) -> int | None:
        """`usage.prompt_tokens` of a one-token answer to this body; None when the service reports none.

        Raises ConfigError, with the likely cause, when the service refuses.
        """
        response = self.chat_once({**body, "max_tokens": 1, "stream": False})
        if not response.ok:
            failure = status_failure(response.status_code, response.content)
            raise ConfigError(f"{self.endpoint.base_url} refuses a request ({failure}); {failure.category.hint}")
        document = _json(response)
        usage = document.get("usage") if isinstance(document, dict) else None
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    def count_by_tokenizer(self, model: str, messages: list[dict[str, str]]) -> int | None:
        """Tokens counted by vLLM's `/tokenize`, chat template included; None where there is none."""
        response = self._call("POST", f"{self.endpoint.origin}/tokenize", {"model": model, "messages": messages})
        document = _json(response) if response.ok else None
        count = document.get("count") if isinstance(document, dict) else None
        return count if isinstance(count, int) and count > 0 else None

    def refuses_field(self, body: dict[str, Any], field: str) -> bool:
        """Whether the service answers 400 or 422 because of `field`, and answers well without it."""
        probe = {**body, "max_tokens": 1, "stream": False}
        if self.chat_once(probe).status_code not in {400, 422}:
            return False
        probe.pop(field, None)
        return self.chat_once(probe).ok

    def _call(self, method: str, url: str, body: dict[str, Any] | None = None) -> requests.Response:
        try:
            return self._session.request(method, url, json=body, timeout=_TIMEOUT_S)
        except requests.exceptions.SSLError as error:
            raise ConfigError(f"{self.endpoint.base_url}: TLS failed ({_reason(error)}); {_TLS_HINT}") from None
        except requests.exceptions.ConnectionError as error:
            raise ConfigError(
                f"{self.endpoint.base_url}: no connection ({_reason(error)}); is the server up, is the address right?"
            ) from None
        except requests.exceptions.RequestException as error:
            raise ConfigError(f"{self.endpoint.base_url}: {type(error).__name__} on {method} {url}") from None


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
    try:
        return response.json()
    except requests.exceptions.JSONDecodeError:
        raise ConfigError(
            f"{response.request.method} {response.url}: expected JSON, got {body_message(response.content)[:80]!r}"
        ) from None
