"""Commands of `memrl` that move banks and traces in and out, and measure; `memrl_core.cli` names them."""
