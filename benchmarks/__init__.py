"""How long the work behind the screens takes on this machine, one module a benchmark."""
