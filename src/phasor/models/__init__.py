"""Which rotation a model's config asks for: the rows of the families, and the engine that reads configs by them."""
