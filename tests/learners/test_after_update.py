"""Every learner hands a sharing method the network after a step, and the gradient of that step as it was before
``constrain``."""

import dataclasses

import jax
import pytest

from prism_marl.learners import IPPO, IQL, MAPPO, MATD3, VDN, QMix
from prism_marl.sharing import FuPS
from prism_marl.types import EnvSpec

SEEN: list[tuple] = []
GIVEN: list = []


@dataclasses.dataclass(frozen=True)
class Watching(FuPS):
    """Takes the gradient away from the optimiser and notes what it is told afterwards."""

    def constrain(self, gradient, step):
        GIVEN[:] = jax.tree.leaves(gradient)
        return jax.tree.map(lambda leaf: 0 * leaf, gradient)

    def after_update(self, network, gradient):
        whole = all(leaf is given for leaf, given in zip(jax.tree.leaves(gradient), GIVEN, strict=True))
        SEEN.append((jax.tree.structure(network), jax.tree.structure(gradient), whole))
        return network


def spec(kind) -> EnvSpec:
    return EnvSpec("toy", agents=3, observation=4, state=5, actions=2, roles=3, horizon=3, kind=kind)


CASES = {
    "qmix": (QMix(embed=2, hypernet=2), "discrete", 1),
    "vdn": (VDN(), "discrete", 1),
    "iql": (IQL(), "discrete", 1),
    "mappo": (MAPPO(length=2, critic_sharing="same", recurrent=False), "discrete", 2),  # actor and critic
    "ippo": (IPPO(length=2, recurrent=False), "continuous", 1),
    "matd3": (MATD3(critic_width=4, n_critics=2), "continuous", 1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_hook_is_called_with_network_and_gradient(name):
    settings, kind, networks = CASES[name]
    SEEN.clear()
    assert settings.learner(Watching(), spec(kind), width=4, rows=1).metrics  # traces an update
    found = {(network, gradient) for network, gradient, _ in SEEN}
    assert len(found) == networks and all(network == gradient for network, gradient in found)
    assert all(whole for *_, whole in SEEN)
