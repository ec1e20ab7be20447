from __future__ import annotations

from check.scripted import Answer, model_list, tokens

from pd_locust.stream import Category


def generate(body):
    return Answer(body=tokens(body["max_tokens"]))


def step(seen, name):
    return next(found for found in seen.steps if found.name == name)


def test_a_self_signed_certificate_fails_with_the_ways_to_trust_it(scripted, self_signed, check):
    service = scripted(generate, models=model_list("m"), tls=self_signed[0])
    seen = check(service.url)
    assert step(seen, "tls").failure.category is Category.TLS
    assert "self-signed: --pd-insecure, or SSL_CERT_FILE" in step(seen, "tls").advice[0]


def test_insecure_goes_on_and_says_that_nothing_was_verified(scripted, self_signed, check):
    seen = check(scripted(generate, models=model_list("m"), tls=self_signed[0]).url, verify_tls=False)
    assert seen.ok, seen.verdict
    assert "NOT verified" in step(seen, "tls").seen


def test_a_certificate_trusted_by_ssl_cert_file_is_trusted_by_every_step(
    scripted, self_signed, check, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(self_signed[1]))
    seen = check(scripted(generate, models=model_list("m"), tls=self_signed[0]).url)
    assert seen.ok, seen.verdict
    assert "certificate of llm.test, issued by llm.test, good until" in step(seen, "tls").seen


def test_a_certificate_for_another_name_is_told_apart(scripted, self_signed, check, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(self_signed[1]))
    service = scripted(generate, tls=self_signed[0])
    seen = check(service.url.replace("127.0.0.1", "localhost"), model="m")
    assert "for another name" in step(seen, "tls").advice[0]


def test_plain_http_behind_an_https_url_is_said(scripted, check):
    service = scripted(generate, models=model_list("m"))
    seen = check(service.url.replace("http:", "https:"))
    assert "speaks plain HTTP" in step(seen, "tls").seen
    assert f"{service.url}/v1" in step(seen, "tls").advice[0]


def test_tls_behind_an_http_url_is_said(scripted, self_signed, check):
    service = scripted(generate, models=model_list("m"), tls=self_signed[0])
    seen = check(service.url.replace("https:", "http:"), model="m")
    assert not seen.ok
    assert any("the port speaks TLS" in advice for advice in step(seen, "one token").advice)
