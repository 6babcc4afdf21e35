"""What each method has learned, on the screen Methods: a module a kind of thing that is learned."""
