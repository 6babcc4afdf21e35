"""The methods of the literature: one file each, from its settings and its card to its rules."""
