"""ScienceWorld, for the package scienceworld and Java."""
