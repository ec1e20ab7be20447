from __future__ import annotations

import pytest

from pd_locust.endpoint import Endpoint
from pd_locust.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "base_url"),
    [
        ("http://host", "http://host/v1"),
        ("http://host/", "http://host/v1"),
        ("http://host/v1", "http://host/v1"),
        ("http://host/v1/", "http://host/v1"),
        ("http://host/v1/chat/completions", "http://host/v1"),
        ("http://host/v1/chat/completions/", "http://host/v1"),
        ("  https://host/api  ", "https://host/api/v1"),
        ("https://host/api/v3", "https://host/api/v3"),
        ("https://host/v1beta", "https://host/v1beta"),
        ("http://host/v1x/y", "http://host/v1x/y/v1"),
        ("HTTP://Host:8000", "http://host:8000/v1"),
        ("http://host:80", "http://host/v1"),
        ("https://host:443/v1", "https://host/v1"),
        ("https://host:80/v1", "https://host:80/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://[2001:db8::7]", "http://[2001:db8::7]/v1"),
        ("http://10.0.0.7:30000", "http://10.0.0.7:30000/v1"),
        ("http://host/\u63a5\u53e3/v1", "http://host/%E6%8E%A5%E5%8F%A3/v1"),
        ("http://b\u00fccher.example/v1", "http://xn--bcher-kva.example/v1"),
    ],
)
def test_every_form_that_people_paste_is_one_service(given, base_url):
    endpoint = Endpoint.parse(given)
    assert endpoint.base_url == base_url
    assert endpoint.chat_path == base_url.split("/", 3)[3].join(["/", "/chat/completions"])
    assert Endpoint.parse(endpoint.base_url) == endpoint


def test_a_path_that_ends_in_chat_completions_is_taken_at_its_word():
    assert Endpoint.parse("https://host/openai/chat/completions").chat_path == "/openai/chat/completions"


def test_the_normal_form_of_a_path_without_version_is_the_same_service():
    endpoint = Endpoint.parse("https://host/openai/chat/completions")
    assert Endpoint.parse(endpoint.base_url) == endpoint


def test_the_parts_of_an_endpoint():
    endpoint = Endpoint.parse("https://[::1]:8443/api/v2/chat/completions")
    assert (endpoint.scheme, endpoint.host, endpoint.port, endpoint.root) == ("https", "::1", 8443, "/api/v2")
    assert (endpoint.netloc, endpoint.origin) == ("[::1]:8443", "https://[::1]:8443")
    assert endpoint.chat_path == "/api/v2/chat/completions"


@pytest.mark.parametrize("given", ["http://host/v1?key=s3cret", "http://host?", "http://host/v1#part"])
def test_a_query_or_fragment_is_refused_without_showing_it(given):
    with pytest.raises(ConfigError, match="no query string or fragment is accepted") as refusal:
        Endpoint.parse(given)
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(
    "given",
    [
        "http://user:s3cret@host/v1",
        "http://s3cret@host",
        "https://:s3cret@host",
        "http://user:s3cret@host?x=s3cret",
    ],
)
def test_credentials_are_refused_without_an_echo(given):
    with pytest.raises(ConfigError, match="--pd-api-key") as refusal:
        Endpoint.parse(given)
    assert "s3cret" not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    "given", ["", "host", "host:8000", "/v1", "ftp://host", "http://", "http:///v1", "localhost:8000/v1"]
)
def test_what_is_no_base_url_is_refused_with_what_is_accepted(given):
    with pytest.raises(ConfigError, match=r"expected http://HOST\[:PORT\]\[/PATH\]"):
        Endpoint.parse(given)


@pytest.mark.parametrize(
    "port",
    [
        "70000",
        "http",
        "-1",
        "0",
    ],
)
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(ConfigError, match="the port must be a number from 1 to 65535"):
        Endpoint.parse(f"http://host:{port}/v1")


@pytest.mark.parametrize(
    "given", ["http://[::1/v1", "http://a b/v1", "http://host/a b", "http://host\x7f/v1"]
)
def test_a_url_that_cannot_be_sent_is_a_configuration_error(given):
    with pytest.raises(ConfigError):
        Endpoint.parse(given)
