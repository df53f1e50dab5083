"""Three programs as their authors write them with torch.nn: what they do to its recurrent modules, and how they call them. Each
takes what changes its model before the training (`anyrnn.torch.swap`, or nothing), and gives the losses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, embedding
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

Change = Callable[[nn.Module], nn.Module]


class Tagger(nn.Module):
    """A label for every word: an embedding, a bidirectional LSTM over packed sentences, a linear layer."""

    def __init__(self, words: int, size: int, hidden: int, tags: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, size, padding_idx=0)
        self.lstm = nn.LSTM(size, hidden, num_layers=2, bidirectional=True, batch_first=True, dropout=0.0)
        self.tags = nn.Linear(2 * hidden, tags)

    def forward(self, sentences: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embedding(sentences), lengths, batch_first=True, enforce_sorted=False)
        outputs, (last, _) = self.lstm(packed)
        assert isinstance(outputs, PackedSequence)
        padded, _ = pad_packed_sequence(outputs, batch_first=True)
        context = torch.cat([last[-2], last[-1]], -1).unsqueeze(1)
        scores: Tensor = self.tags(padded + context)
        return scores


def tagger(
    change: Change, steps: int, hidden: int = 12, samples: int = 8, longest: int = 11, dtype: Any = torch.float64
) -> list[float]:
    torch.manual_seed(0)
    model = change(Tagger(30, hidden, hidden, 5).to(dtype))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        lengths = torch.randint(1, longest + 1, (samples,))
        lengths[0] = longest
        sentences = torch.randint(1, 30, (samples, longest)) * (torch.arange(longest) < lengths[:, None])
        tags = sentences.roll(1, 1) % 5
        scores = model(sentences, lengths)
        loss = cross_entropy(scores.flatten(0, 1), tags.masked_fill(sentences == 0, -100).flatten(), ignore_index=-100)
        model.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        losses.append(loss.item())
    return losses


class ActorCritic(nn.Module):
    """Probabilities of actions and the value of what was seen so far, step by step; `over` begins an episode anew."""

    def __init__(self, features: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden)
        self.actor = nn.Linear(hidden, actions)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, seen: Tensor, over: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        outputs = []
        for x, new in zip(seen, over, strict=True):
            keep = (1.0 - new).view(1, -1, 1)
            output, state = self.lstm(x.unsqueeze(0), (keep * state[0], keep * state[1]))
            outputs.append(output)
        hidden = torch.cat(outputs)
        return self.actor(hidden), self.critic(hidden).squeeze(-1), state


def actor_critic(
    change: Change, steps: int, hidden: int = 12, samples: int = 6, length: int = 7, dtype: Any = torch.float64
) -> list[float]:
    """Remember the sign that an episode began with. The target network is a copy that follows every few steps through `.data`."""
    torch.manual_seed(0)
    model, target = (change(ActorCritic(3, hidden, 2).to(dtype)) for _ in range(2))
    target.load_state_dict(model.state_dict())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    state = of_target = (torch.zeros(1, samples, hidden, dtype=dtype),) * 2
    sign, losses = torch.ones(samples), []
    for step in range(steps):
        seen, over, signs = [], [], []
        for _ in range(length):
            new = (torch.rand(samples) < 0.2).float()
            sign = torch.where(new > 0, torch.randint(0, 2, (samples,)).float() * 2 - 1, sign)
            seen.append(torch.stack([sign * new, new, torch.rand(samples)], -1))
            over.append(new)
            signs.append(sign)
        observations, ends = torch.stack(seen).to(dtype), torch.stack(over).to(dtype)
        with torch.no_grad():
            scores, _, _ = model(observations, ends, state)
            actions = scores.softmax(-1).flatten(0, 1).multinomial(1).view(length, samples)
            rewards = (actions * 2 - 1 == torch.stack(signs)).to(dtype)
            _, values, of_target = target(observations, ends, of_target)
            returns = rewards + 0.9 * values.roll(-1, 0) * (1 - ends.roll(-1, 0))
        scores, values, state = model(observations, ends, state)
        chosen = scores.log_softmax(-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        loss = -(chosen * (returns - values).detach()).mean() + 0.5 * (returns - values).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        state = (state[0].detach(), state[1].detach())
        if step % 3 == 0:
            for theirs, ours in zip(target.parameters(), model.parameters(), strict=True):
                theirs.data.copy_(ours.data)
        losses.append(loss.item())
    return losses


class WeightDrop(nn.Module):
    """Drops weights of a module: a parameter is kept as `.._raw`, and what is left of it put in its place at every call."""

    def __init__(self, module: nn.Module, name: str, p: float) -> None:
        super().__init__()
        self.module, self.name, self.p = module, name, p
        raw = getattr(module, name)
        delattr(module, name)
        self.register_parameter(f"{name}_raw", nn.Parameter(raw.data))
        setattr(module, name, raw.data)
        module.flatten_parameters = lambda *_: None  # type: ignore[assignment,unused-ignore]

    def forward(self, *given: Any) -> Any:
        raw = getattr(self, f"{self.name}_raw")
        setattr(self.module, self.name, dropout(raw, self.p, self.training))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # weights that are not one block of memory
            return self.module(*given)


class LanguageModel(nn.Module):
    """The next sign, from those before: dropped rows of a tied embedding, layers of LSTMs whose recurrent weights are dropped."""

    def __init__(self, signs: int, size: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(signs, size)
        sizes = [(size, hidden), (hidden, size)]
        self.layers = nn.ModuleList(WeightDrop(nn.LSTM(i, h), "weight_hh_l0", 0.3) for i, h in sizes)
        self.bias = nn.Parameter(torch.zeros(signs))

    def forward(self, text: Tensor, states: list[Any]) -> tuple[Tensor, Tensor, list[Any]]:
        rows = dropout(torch.ones_like(self.embedding.weight[:, :1]), 0.1, self.training)
        x = embedding(text, rows * self.embedding.weight)
        after = []
        for layer, state in zip(self.layers, states, strict=True):
            x, state = layer(x, state)
            after.append(state)
        return x @ self.embedding.weight.T + self.bias, x, after


def language_model(
    change: Change, steps: int, hidden: int = 16, samples: int = 5, length: int = 9, dtype: Any = torch.float64
) -> list[float]:
    """States go from one part of a text to the next, detached; outputs and their changes are kept small."""
    torch.manual_seed(0)
    model = change(LanguageModel(20, hidden // 2, hidden).to(dtype))
    optimiser = torch.optim.ASGD(model.parameters(), lr=2.0)
    text = (torch.arange(length * steps + 1)[:, None] * torch.arange(1, samples + 1)) % 20
    states: list[Any] = [None, None]
    losses = []
    for step in range(steps):
        part = slice(step * length, (step + 1) * length)
        scores, output, states = model(text[part], states)
        states = [tuple(s.detach() for s in state) for state in states]
        loss = cross_entropy(scores.flatten(0, 1), text[part.start + 1 : part.stop + 1].flatten())
        regular = loss + 2.0 * output.square().mean() + 1.0 * (output[1:] - output[:-1]).square().mean()
        model.zero_grad()
        regular.backward()
        clip_grad_norm_(model.parameters(), 0.25)
        optimiser.step()
        losses.append(loss.item())
    return losses
