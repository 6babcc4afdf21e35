"""A run's memory as the frameworks of others ask for it; each needs that framework, and the core imports none."""
