"""A simulated LLM service with Prefill/Decode disaggregation; shares no code with pd_locust.

Models of a service, without sockets or clocks:

    service.py         what a model takes and gives: Job, Emission, Service
    profiles.py        the constants of each simulated service, and the source of each constant
    pd_service.py      a queueing model of a disaggregated service; instances.py is the state of its instances
    linear_service.py  a model whose capacity can be worked out by hand
    oracle.py          closed-loop runs in virtual time, and the largest concurrency within a limit

The same models behind real sockets:

    server.py          routes; one timer (timerfd.py) drives all streams
    http_protocol.py   HTTP/1.1; chat_body.py reads request bodies, tokens.py counts
    replies.py         the OpenAI streaming protocol; faults.py breaks it on request
    truth.py           when each request was received and answered; metrics.py shows totals as vLLM does
"""
