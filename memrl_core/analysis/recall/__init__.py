"""Was the right memory found? Labels made into grades, measures of retrieval, where a memory was lost, and tuning."""
