"""The screens: a folder each, and what several of them use in `pages.shared`."""
