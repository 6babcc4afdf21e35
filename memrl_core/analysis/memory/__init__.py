"""One memory, or how memories relate: where its q comes from, how it is used, what it is near."""
