"""A simulated LLM service with Prefill/Decode disaggregation; shares no code with the rest of pd_locust.

The models, which know neither sockets nor clocks:

    job.py        what enters and leaves a model: Job, Emission, Service
    profiles.py   the constants of each simulated service, and where each comes from
    model.py      the PD queueing model; instances.py holds the state of its instances
    linear.py     TTFT grows by a fixed step per request in flight: a model with a known answer
    oracle.py     closed-loop runs in virtual time, and the largest concurrency within a limit (limit.py)

The same models behind real sockets:

    server.py     routes, and the one alarm (alarm.py) that drives all streams
    connection.py HTTP/1.1; chat.py reads request bodies, tokens.py counts
    replies.py    the OpenAI streaming protocol; faults.py breaks it on request
    truth.py      what happened when, for whoever measures the measurers; metrics.py is vLLM's view
"""
