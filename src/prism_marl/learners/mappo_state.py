"""What MAPPO and IPPO carry along: networks and their optimisers, an actor's memory, and the samples of a rollout."""

from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key

from prism_marl.learners.regularisation import Balance
from prism_marl.learners.value_norm import ValueNorm
from prism_marl.networks.mlp import MlpActor
from prism_marl.networks.recurrent import RecurrentAgent
from prism_marl.types import Observation


class Actor(eqx.Module):
    """What the actor's optimiser trains."""

    agent: RecurrentAgent | MlpActor
    spread: Float[Array, "a u"]  # deviations of continuous actions (networks/heads.py), of each agent or of all


class MAPPOState(eqx.Module):
    """All that learning carries from one rollout to the next."""

    actor: Actor
    critic: RecurrentAgent | MlpActor
    actor_optimiser: Any
    critic_optimiser: Any
    actor_balance: Balance
    critic_balance: Balance
    norm: ValueNorm
    critic_hidden: Float[Array, "b v h"] | None  # before the next rollout
    key: Key[Array, ""]  # never changes: counters tell its uses apart


class Memory(NamedTuple):
    """What an actor carries from step to step."""

    hidden: Float[Array, "*b a h"]
    fresh: Bool[Array, "*b"]  # no step of the episode was made


class Samples(NamedTuple):
    """Sequences for training: [steps, sequences, ...]; where nothing is remembered they have one step."""

    obs: Observation
    drawn: Array
    log_prob: Float[Array, "s n a"]
    advantage: Float[Array, "s n a"]
    target: Float[Array, "s n v"]
    value: Float[Array, "s n v"]  # before the epochs, as the critic said it
    active: Float[Array, "s n a"]
    fresh: Bool[Array, "s n"]


class Starts(NamedTuple):
    """What networks remembered before each sequence; None where nothing is remembered."""

    actor: Float[Array, "n a h"] | None
    critic: Float[Array, "n v h"] | None
