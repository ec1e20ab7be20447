"""The simulated services, and where each of their constants comes from.

"Table" is a published single-stream measurement of Qwen3.5-9B on 8 prefill + 8 decode H100 instances:

    prompt tokens    16     850    6330   20890
    TTFT ms          49.1   66.9   80.1   94.4
    TPOT ms          6.4    6.4    6.5    6.7

and its capacities under a mean TTFT of 500 ms: 179, 127 and 72 users. "Arithmetic" follows from the model's
shape or the hardware. "Tuned" was chosen so that the model as a whole gives those capacities.
"""

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PdProfile:
    """One disaggregated deployment; times are those of an idle instance."""

    name: str
    prefill_instances: int
    decode_instances: int

    routing_ms: float
    """Tokenizing, routing and two HTTP hops: adds to TTFT, occupies no instance."""
    prefill_curve_ms: tuple[tuple[int, float], ...]
    """(tokens, ms) of one prefill step, ascending; straight lines between, and the last one goes on."""
    prefill_budget_tokens: int
    """A step takes waiting prompts, and the start of one more, up to this many uncached tokens."""
    cached_token_us: float
    """What a prefix-cached prompt token still costs in prefill."""
    cache_block_tokens: int
    cache_capacity_tokens: int
    """Prefix cache of one prefill instance; least recently used blocks leave first."""

    kv_bytes_per_token: int
    kv_state_bytes: int
    """Per request, whatever its length: the recurrent state of the linear-attention layers."""
    kv_link_gbit_s: float
    """Each instance has one link and moves one prompt over it at a time."""

    step_base_ms: float
    step_per_request_ms: float
    step_per_kilotoken_ms: float
    """A decode step lasts base + per_request x batch + per_kilotoken x context tokens of the batch / 1000."""
    decode_max_batch: int
    decode_kv_capacity_tokens: int
    kv_block_tokens: int
    kv_state_tokens: int
    """A request holds its prompt and output in whole blocks, and its state, until it is done."""

    max_model_len_tokens: int

    @property
    def pairs(self) -> int:
        """PD pairs: prefill instances that have a decode instance each."""
        return min(self.prefill_instances, self.decode_instances)

    def prefill_step_ms(self, tokens: int, cached_tokens: int = 0) -> float:
        """Time of one prefill step over `tokens` uncached tokens beside `cached_tokens` cached ones."""
        curve = self.prefill_curve_ms
        right = min(max(bisect_left(curve, (tokens, 0.0)), 1), len(curve) - 1)
        (left_tokens, left_ms), (right_tokens, right_ms) = curve[right - 1], curve[right]
        slope = (right_ms - left_ms) / (right_tokens - left_tokens)
        return left_ms + slope * (tokens - left_tokens) + self.cached_token_us * cached_tokens / 1000

    def transfer_ms(self, prompt_tokens: int) -> float:
        """Time on an idle link; cached tokens count, because decode holds none of them."""
        kv_bytes = prompt_tokens * self.kv_bytes_per_token + self.kv_state_bytes
        return kv_bytes * 8 / (self.kv_link_gbit_s * 1e6)

    def decode_step_ms(self, batch: int, context_tokens: int) -> float:
        """Time of one decode step, which gives every request of the batch one token."""
        return (
            self.step_base_ms
            + self.step_per_request_ms * batch
            + self.step_per_kilotoken_ms * context_tokens / 1000
        )

    def reserved_tokens(self, prompt_tokens: int, output_tokens: int) -> int:
        """KV space one request holds on its decode instance, in tokens."""
        blocks = -(-(prompt_tokens + output_tokens) // self.kv_block_tokens)
        return blocks * self.kv_block_tokens + self.kv_state_tokens


@dataclass(frozen=True, slots=True)
class LinearProfile:
    """TTFT = base + per_request x (requests in flight at arrival, this one included); TPOT is constant.

    `spread_ratio` s spreads TTFTs evenly over 1 - s to 1 + s times that, request by request.
    """

    name: str
    base_ms: float
    per_request_ms: float
    tpot_ms: float
    max_model_len_tokens: int
    cache_block_tokens: int = 64
    spread_ratio: float = 0.0
    pairs: int = 1


Profile = PdProfile | LinearProfile

QWEN = PdProfile(
    name="qwen3.5-9b-8p8d",
    prefill_instances=8,
    decode_instances=8,
    # Tuned, within bounds: the table shows only its sum with the prefill step. Below about 24 ms, or the step
    # of 6,330 tokens would undercut the fp8 compute floor of 44 ms (2 x 6.9e9 x 6330 / 1979e12).
    routing_ms=10.0,
    # Table: TTFT less routing, transfer and one decode step. The last point is arithmetic: 12 us a token,
    # 58 % of an H100's dense fp8 peak, for the table's own value at 20,890 tokens is below the compute floor.
    prefill_curve_ms=((16, 31.7), (850, 48.9), (6330, 58.4), (16384, 179.0)),
    # Usual for an H100. Also decides how many short prompts of a wave share one step.
    prefill_budget_tokens=16384,
    # Table: 94.4 ms at 20,890 tokens is what a full prefix hit would give.
    cached_token_us=1.5,
    cache_block_tokens=64,
    # Arithmetic: 20 GB of HBM at 32 KiB a token.
    cache_capacity_tokens=600_000,
    # Arithmetic: 8 full-attention layers x 2 x 4 KV heads x 256 x 2 bytes; 24 linear-attention states.
    kv_bytes_per_token=32 * 1024,
    kv_state_bytes=50_000_000,
    # One ConnectX-7 port an instance.
    kv_link_gbit_s=400.0,
    # Table for a batch of 1: 6.4 ms, and 0.3 ms more with 20,890 tokens of context. Tuned: the share per
    # request, so that 8 medium requests an instance (64 users) run at 9.2 ms a token.
    step_base_ms=6.0,
    step_per_request_ms=0.4,
    step_per_kilotoken_ms=0.0143,
    # The engines' usual ceiling; the KV space binds first.
    decode_max_batch=256,
    # Tuned, and smaller than an H100 needs to be. Prefill cannot be what binds in the table: 179 short users
    # with 256 output tokens are 45 requests/s, 5.6 an instance, so a short prompt would have to occupy its
    # prefill instance for 180 ms, of a TTFT of 49. So requests wait for room on decode, where an instance
    # holds 19 short, 15 medium or 7 long ones.
    decode_kv_capacity_tokens=80_000,
    # Hybrid models page KV in blocks as large as a state page; 2 x 1,526 is the state in tokens, held twice
    # (the running one and the one at the last block boundary).
    kv_block_tokens=1056,
    kv_state_tokens=3052,
    max_model_len_tokens=65_536,
)

LINEAR = LinearProfile(
    name="linear", base_ms=20.0, per_request_ms=10.0, tpot_ms=10.0, max_model_len_tokens=65_536
)

# For measuring the measurers: nothing in it depends on the load, so whatever the load does to a client's numbers
# is the client's own. The spread keeps streams that start together from answering in the same microsecond.
STEADY = LinearProfile(
    name="steady",
    base_ms=200.0,
    per_request_ms=0.0,
    tpot_ms=8.0,
    max_model_len_tokens=65_536,
    spread_ratio=0.2,
)

PROFILES: dict[str, Profile] = {profile.name: profile for profile in (QWEN, LINEAR, STEADY)}
