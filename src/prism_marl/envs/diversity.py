"""How much diversity a task needs: the best returns of teams whose agents act alike, and of those that may differ."""

from dataclasses import dataclass
from typing import Literal

from prism_marl.envs.groups import make_groups
from prism_marl.envs.roles import make_roles

Known = Literal["exact", "sampled", "at least", "at most"]


@dataclass(frozen=True)
class Diversity:
    """Best mean returns of a task, with and without differences between agents."""

    alike: float  # all agents act by one deterministic policy of what each observes, without its index
    unlike: float  # every agent may have a policy of its own
    reason: str  # why these are the best
    known: Known = "exact"  # what ``need`` is: the difference, its mean over sampled starts, or a bound of it
    random: float | None = None  # all act by one policy that may be random; None: not known

    @property
    def need(self) -> float:
        """What a team gains at best when its agents may differ."""
        return self.unlike - self.alike


def roles_diversity(variant: str) -> Diversity:
    """The game of indices."""
    share = 1 / make_roles(variant).agents
    return Diversity(share, 1.0, "every action is right for one agent", random=share)


def groups_diversity(variant: str) -> Diversity:
    """The game of groups."""
    env = make_groups(variant)
    share = max(env.group.tolist().count(group) for group in range(env.groups)) / env.agents
    return Diversity(share, 1.0, "for every sign each play is right for one group; the largest decides", random=share)
