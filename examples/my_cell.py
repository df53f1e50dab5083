"""A cell of one's own on the adding problem of Hochreiter & Schmidhuber 1997: the sum of a sequence's two marked numbers."""

import torch

import anyrnn.torch
from anyrnn import State, affine, cell, sigmoid, tanh


@cell
def light_gru(x, h):
    """One gate, no reset: an update of the state by what the input and the state propose."""
    z = sigmoid(affine("z", x, h))
    n = tanh(affine("n", x, h))
    h = z * h + (1 - z) * n
    return h, State(h=h)


class Adder(torch.nn.Module):
    """The cell's layer, and a linear head on its last state."""

    def __init__(self):
        super().__init__()
        self.layer = anyrnn.torch.Recurrent(light_gru, 2, 64)
        self.head = torch.nn.Linear(64, 1)

    def forward(self, x):
        _, h = self.layer(x)
        return self.head(h[0])[:, 0]


def batch(steps=40, rows=64):
    numbers, marks = torch.rand(steps, rows), torch.zeros(steps, rows)
    columns = torch.arange(rows)
    for half in (0, steps // 2):
        marks[torch.randint(half, half + steps // 2, (rows,)), columns] = 1
    return torch.stack([numbers, marks], -1), (numbers * marks).sum(0)


def main(iterations=600):
    torch.manual_seed(0)
    model = Adder()
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for i in range(iterations):
        x, y = batch()
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if i % 100 == 99:
            print(f"step {i + 1}: mean squared error {loss.item():.4f}")
    return loss.item()


if __name__ == "__main__":
    main()
