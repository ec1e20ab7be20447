"""What waits for a socket is tested with threads, and runs with gevent, whose sockets end and fail in other ways."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
AS_LOCUST_DOES = """
from gevent import monkey
monkey.patch_all()
import sys, pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", sys.argv[1]]))
"""


@pytest.mark.parametrize(
    "tested", [pytest.param("wire/test_connection.py", marks=pytest.mark.alone), "check"]
)
def test_under_gevent_the_same_tests_pass(tested):
    command = [sys.executable, "-c", AS_LOCUST_DOES, str(TESTS / tested)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
