"""Language models: two wires of our own, a library for the rest, and what stands in where there is none."""
