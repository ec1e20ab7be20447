"""The simulated service that runs when no --host is given, as a process of its own."""

from __future__ import annotations

import atexit
import subprocess
import sys
from typing import Any

from pd_locust.errors import ConfigError


class SimulatedService:
    """Lives as long as this process: it ends when its standard input closes, however we end.

    `model` is the one that it serves, `labels` what it says of its deployment: its PD pairs.
    """

    def __init__(
        self, process: subprocess.Popen[str], base_url: str, model: str, labels: dict[str, str]
    ) -> None:
        self.base_url = base_url
        self.model = model
        self.labels = labels
        self._process = process
        atexit.register(self.stop)

    @classmethod
    def start(cls, options: Any) -> SimulatedService:
        """Start it on a free loopback port and wait until it says that it is ready."""
        command = [
            sys.executable, "-m", "pd_sim", "--port", "0", "--exit-with-stdin",
            "--profile", options.pd_sim_profile, "--time-scale", str(options.pd_sim_time_scale),
        ]  # fmt: skip
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline() if process.stdout else ""
        if " ready " not in line:
            code = process.wait()
            raise ConfigError(
                f"the simulated service did not start (exit code {code}); see its message above"
            )
        base_url, *facts = line.split(" ready ", 1)[1].split()
        said = dict(fact.split("=", 1) for fact in facts)
        return cls(process, base_url, said["model"], {"pairs": said["pairs"]})

    def stop(self) -> None:
        """End it now; more than once does no harm."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
