"""llama.cpp's HTTP server from the xllamacpp wheel, on loopback: llama_server.py WEIGHTS PORT MODEL KEY."""

from __future__ import annotations

import signal
import sys

import xllamacpp

weights, port, model, key = sys.argv[1:]
parameters = xllamacpp.CommonParams()
parameters.model.path = weights
parameters.port = int(port)
parameters.hostnames = ["127.0.0.1"]
parameters.model_alias = {model}
parameters.api_keys = [key]
parameters.n_ctx = 8192
parameters.n_parallel = 4
parameters.n_gpu_layers = 0
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 2
parameters.ui = False
parameters.offline = True
server = xllamacpp.Server(parameters)
print("ready", server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
