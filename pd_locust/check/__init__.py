"""The control plane of the service under test, over requests: what must be known before the load starts."""
