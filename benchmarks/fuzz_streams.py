"""Read N pseudo-random streams, and print how they were judged.

    python benchmarks/fuzz_streams.py [N] [SEED]

Each stream is read whole and in random cuts; every tenth is a damaged HTTP answer. A crash is an exception
that leaves the reader, or a record that breaks a promise; a difference is a record that the cuts changed.
Either is printed on stderr with its seed, and the exit code is then 1.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from wire.noise import check, check_answer, cut, damaged_answer, facts, read, stream


def main() -> int:
    streams = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    first_seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    by_category: Counter[str] = Counter()
    crashes = differences = 0
    started_s = time.perf_counter()
    for seed in range(first_seed, first_seed + streams):
        rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
        try:
            if seed % 10 == 0:
                by_category[check_answer(damaged_answer(rng))] += 1
                continue
            body, end = stream(rng)
            whole = read([body], end)
            by_category[check(whole)] += 1
            if facts(read(cut(rng, body), end)) != facts(whole):
                differences += 1
                print(f"seed {seed}: cutting changes the record", file=sys.stderr)
        except Exception:  # noqa: BLE001 - any exception is what is looked for
            crashes += 1
            print(f"seed {seed}: {traceback.format_exc(limit=-2)}", file=sys.stderr)
    print(
        json.dumps(
            {
                "streams": streams,
                "crashes": crashes,
                "differences": differences,
                "by_category": dict(by_category.most_common()),
                "seconds": round(time.perf_counter() - started_s, 1),
            }
        )
    )
    return 1 if crashes or differences else 0


if __name__ == "__main__":
    sys.exit(main())
