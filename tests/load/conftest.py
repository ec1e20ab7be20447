"""Import Locust once, without its patches: other tests of this process use real sockets and threads."""

from __future__ import annotations

import os

os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"
import locust  # noqa: F401

# Not for the processes that other tests start: there users depend on the patches.
del os.environ["LOCUST_SKIP_MONKEY_PATCH"]
