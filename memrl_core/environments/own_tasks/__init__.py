"""A person's own file of tasks: read, checked, and judged by the rule that each task names."""
