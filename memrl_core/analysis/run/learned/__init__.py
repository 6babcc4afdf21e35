"""What a method has learned from a run, beyond the single step: one module a kind of thing that is learned."""
