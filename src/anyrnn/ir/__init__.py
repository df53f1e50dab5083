"""The intermediate representation: one step of a cell as a graph of values."""
