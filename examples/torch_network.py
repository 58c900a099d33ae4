"""Prism in plain PyTorch: a small cooperative game, a network of two layers, Q-learning, no JAX.

All agents see the same signal, one of four. Agent i must answer (signal + i) modulo four, and the team is told only how
many answers were right. The network gets no agent id: agents can differ only by their masks, so a team in which all use
the same matrices cannot get more than a quarter right.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from prism_marl.torch import Prism, PrismLoss, SpectralLinear

AGENTS, WIDTH, BATCH = 4, 32, 64


class QNetwork(nn.Module):
    """The value of every answer [batch, agent, answer], from observations [batch, agent, feature]."""

    def __init__(self, prism: Prism):
        super().__init__()
        self.read = nn.Linear(AGENTS, WIDTH)
        self.hidden = prism.linear(WIDTH, WIDTH, identities=AGENTS, depth=0)
        self.values = prism.linear(WIDTH, AGENTS, identities=AGENTS, depth=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.values(torch.relu(self.hidden(torch.relu(self.read(x)))))


def observe(signal: Tensor) -> Tensor:
    """All agents see the same signal."""
    return one_hot(signal, AGENTS).float()[:, None].expand(-1, AGENTS, -1)


def right(signal: Tensor, answer: Tensor) -> Tensor:
    """The share of agents that answer rightly."""
    return (answer == (signal[:, None] + torch.arange(AGENTS)) % AGENTS).float().mean(dim=1)


def score(network: QNetwork) -> float:
    """The return of greedy answers, over all signals."""
    signal = torch.arange(AGENTS)
    with torch.no_grad():
        return right(signal, network(observe(signal)).argmax(dim=-1)).mean().item()


def show(name: str, layer: SpectralLinear) -> None:
    """Which of its own directions each agent uses."""
    own = layer.spectrum()[1][:, -layer.masked :]
    for agent, row in enumerate(own.tolist()):
        print(f"{name}, agent {agent}: {''.join('■' if on else '□' for on in row)}")


def main(steps: int = 1_000, seed: int = 0) -> tuple[float, float]:
    """Train; print the return at the start, at the end, and the best that one function for all can reach."""
    torch.manual_seed(seed)
    prism = Prism(threshold_shift=0.0)  # masks that differ from the start: a short game has no time to find them
    network, add_regularisers = QNetwork(prism), PrismLoss(prism)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    before = score(network)
    for _ in range(steps):
        signal, answer = torch.randint(AGENTS, (BATCH,)), torch.randint(AGENTS, (BATCH, AGENTS))
        value = network(observe(signal)).gather(2, answer[..., None])[..., 0].mean(dim=1)  # of the team, as in VDN
        loss, _ = add_regularisers(((value - right(signal, answer)) ** 2).mean(), network)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    after = score(network)
    for name, layer in (("hidden", network.hidden), ("values", network.values)):
        show(f"layer {name}", layer)
    print(f"return before {before:.2f}, after {after:.2f}; one function for all cannot get above {1 / AGENTS:.2f}")
    return before, after


if __name__ == "__main__":
    main()
