"""IQL: every agent learns its own action values as if the others were part of the environment.

Where a task rewards single agents, each learns from its own reward.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax

from prism_marl.learners import losses
from prism_marl.learners.value import ValueLearner
from prism_marl.learners.value_settings import ValueSettings
from prism_marl.sharing.base import Sharing
from prism_marl.types import EnvSpec


@dataclass(frozen=True)
class IQL(ValueSettings):
    """As QMIX, but every agent learns its own value independently."""

    label: ClassVar[str] = "IQL"

    algorithm: Literal["iql"] = "iql"

    def learner(self, sharing: Sharing, spec: EnvSpec, *, width: int, rows: int = 1, steps: int = 0) -> "IQLLearner":
        """The learner that these settings stand for."""
        del steps
        return IQLLearner(self, sharing, spec, width, rows)


@dataclass(frozen=True)
class IQLLearner(ValueLearner):
    """IQL for one task and one sharing method."""

    @property
    def individual(self) -> bool:
        return self.spec.reward == "agent"

    def mixer(self, key):
        """Nothing is mixed."""
        return

    def mix(self, networks, values, state):
        return values

    def returns(self, episodes, bootstrap):
        """Every agent's own target: its own reward or the team's, and its own next value, [t, b, a]."""
        s = self.settings

        def one(reward, bootstrap):
            flags = (reward, episodes.terminated, episodes.valid)
            return losses.td_lambda(*flags, bootstrap, gamma=s.gamma, lam=s.td_lambda)

        if self.individual:
            return jax.vmap(one, in_axes=-1, out_axes=-1)(episodes.agent_reward, bootstrap)
        return jax.vmap(lambda values: one(episodes.reward, values), in_axes=-1, out_axes=-1)(bootstrap)
