"""Resemblyzer's encoder of voices: three layers of an LSTM, and a product with the last state, of length one."""

import numpy as np
import pytest
import torch

import anyrnn.torch
from anyrnn import convert, files, runtime


@pytest.fixture(scope="module")
def path(request):
    return request.getfixturevalue("shared")("checkpoints/resemblyzer") / "pretrained.pt"


class Encoder(torch.nn.Module):
    def __init__(self, lstm):
        super().__init__()
        self.lstm = lstm(40, 256, num_layers=3, batch_first=True)
        self.linear = torch.nn.Linear(256, 256)

    def forward(self, mels):
        h = self.lstm(mels)[1][0][-1]
        return torch.nn.functional.normalize(self.linear(h).relu())


def mels():
    """Loudness of 40 bands over 160 frames, of five samples."""
    return np.abs(np.random.default_rng(0).standard_normal((5, 160, 40)).astype(np.float32)) ** 2 / 10


def test_it_loads_strictly_and_gives_torchs_embedding(path):
    state = torch.load(path, weights_only=True, map_location="cpu")["model_state"]
    state = {name: tensor for name, tensor in state.items() if not name.startswith("similarity")}
    theirs, ours = Encoder(torch.nn.LSTM), Encoder(anyrnn.torch.LSTM)
    for model in (theirs, ours):
        model.load_state_dict(state, strict=True)
    x = torch.tensor(mels())
    with torch.no_grad():
        a, b = theirs(x), ours(x)
    assert a.norm(dim=1).min() > 0.5  # no embedding is nothing
    assert (a - b).abs().max() < 1e-6


def test_it_runs_without_torch(path):
    arrays, _, _ = files.load(path)
    network = convert.load(path, layer="model_state.lstm")
    head = runtime.Dense("linear", ["end"], arrays["model_state.linear.weight"], arrays["model_state.linear.bias"])
    layers = [*network.layers, runtime.Last("end", ["model_state.lstm"]), head, runtime.Activation("relu", ["linear"], "relu")]
    found = runtime.Network(40, layers, batch_first=True).run(mels())[0]
    state = torch.load(path, weights_only=True, map_location="cpu")["model_state"]
    theirs = Encoder(torch.nn.LSTM)
    theirs.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith("similarity")})
    with torch.no_grad():
        expected = theirs(torch.tensor(mels())).numpy()
    assert np.abs(found / np.linalg.norm(found, axis=1, keepdims=True) - expected).max() < 1e-6
    assert convert.parity(path, network).within
