"""What a method has learned, as pictures: one module a kind of thing that is learned."""
