"""How a step is private: per-example gradients, clips, the mechanism, methods made of them."""
