"""The game ``predator_prey/<predators>-<kinds>``: unlike predators, which look the same.

Prey is of as many kinds as predators, two of each kind. A predator catches prey of its own kind by stepping on it; any
other is scared away for good. Prey flees. All predators observe alike where prey of each kind is. Nothing says which
kind one is, and prey that was caught is gone just like prey that was scared away.
"""

import functools
import re
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from prism_marl.envs.board import (
    ACTIONS,
    SELF_FIELDS,
    agent_discs,
    check_limits,
    kind_fields,
    nearest_of_each_kind,
    sample_places,
    side_by_side,
    steps_between,
    towards,
    walk,
)
from prism_marl.envs.diversity import Diversity
from prism_marl.errors import UserError
from prism_marl.scene import NOBODY, Scene, Shape
from prism_marl.types import EnvSpec, Observation, Step

SIDE = 7  # rows and columns
MIDDLE = SIDE // 2
HORIZON = 40
EACH = 2  # prey of each kind
FLEES = 0.5  # how often prey moves; predators always can
MOST = 16  # predators
SAMPLES = 2_000  # games, for what unlike predators can earn
THERE, CAUGHT, SCARED = range(3)


class State(NamedTuple):
    """Places as row and column; prey by kind."""

    place: Int[Array, "a 2"]
    prey: Int[Array, "p 2"]
    fate: Int[Array, " p"]  # there, caught or scared away
    catching: Bool[Array, " a"]  # who caught prey in the last step; used by drawings only
    clock: Int[Array, ""]


@dataclass(frozen=True)
class PredatorPrey:
    """The team earns the share of prey that it catches."""

    predators: int
    kinds: int

    @property
    def kind(self) -> Int[np.ndarray, " a"]:
        """The kind of each predator: neighbours, in groups as equal as possible."""
        return np.arange(self.predators) * self.kinds // self.predators

    @property
    def prey_kind(self) -> Int[np.ndarray, " p"]:
        """The kind of each prey."""
        return np.repeat(np.arange(self.kinds), EACH)

    @property
    def spec(self) -> EnvSpec:
        n, prey = self.predators, self.kinds * EACH
        return EnvSpec(
            f"predator_prey/{n}-{self.kinds}",
            n,
            observation=2 + 3 * prey,
            state=2 * n + 3 * prey,
            actions=len(ACTIONS),
            roles=n,
            horizon=HORIZON,
            metrics=("scared",),
            storage="int8",
            magnitude=float(SIDE - 1),
        )

    def reset(self, key: Key[Array, ""]) -> tuple[State, Observation]:
        """Predators and prey on different cells."""
        n, prey = self.predators, self.kinds * EACH
        places = sample_places(key, n + prey, np.arange(SIDE**2), SIDE)
        state = State(places[:n], places[n:], jnp.zeros(prey, jnp.int32), jnp.zeros(n, bool), jnp.int32(0))
        return state, self._observe(state)

    def step(self, key: Key[Array, ""], state: State, action: Int[Array, " a"]) -> tuple[State, Step]:
        """Predators move at once and may share cells, but where several want to enter the cell of prey, all of them
        stay. Then prey that is left flees."""
        there = state.fate == THERE
        place = walk(state.place, action, SIDE)
        wants = (steps_between(place, state.prey) == 0) & there  # [a, p]
        several = jnp.sum(wants, axis=0) > 1
        place = jnp.where((wants & several).any(axis=1)[:, None], state.place, place)
        meets = wants & ~several
        catches = meets & (self.kind[:, None] == self.prey_kind)
        caught = catches.any(axis=0)
        fate = jnp.where(caught, CAUGHT, jnp.where(meets.any(axis=0), SCARED, state.fate))
        prey = _flee(key, place, state.prey, fate == THERE)
        clock = state.clock + 1
        over = jnp.all(fate != THERE)
        state = State(place, prey, fate, catches.any(axis=1), clock)
        return state, Step(
            self._observe(state),
            reward=jnp.mean(caught, dtype=jnp.float32),
            terminated=over,
            truncated=(clock >= HORIZON) & ~over,
            metrics={"scared": jnp.mean(fate == SCARED, dtype=jnp.float32)},
        )

    def fields(self) -> tuple[tuple[str, str], ...]:
        """The name and meaning of every number of an observation."""
        return (*SELF_FIELDS, *kind_fields(self.kinds, EACH, "prey"))

    def scene(self, state: State) -> Scene:
        """Discs for predators and squares for prey, in the colours of their kinds; a ring: it catches."""
        shapes: list[Shape] = []
        letters = [chr(ord("A") + kind) for kind in range(self.kinds)]
        prey = [(row, col) for row, col in state.prey.tolist()]
        drawn = zip(self.prey_kind.tolist(), prey, side_by_side(prey), state.fate.tolist(), strict=True)
        for kind, (row, col), x, fate in drawn:
            if fate == THERE:
                shapes.append(Shape("square", x, row + 0.5, 0.5, kind, letters[kind], letters[kind].lower()))
            elif fate == SCARED:
                shapes.append(Shape("cross", col + 0.5, row + 0.5, 0.4, NOBODY, "", "x"))
        cells = [(row, col) for row, col in state.place.tolist()]
        colours = self.kind.tolist()
        discs = agent_discs(cells, [letters[kind] for kind in colours], state.catching.tolist(), 0.84)
        shapes += [Shape(**(vars(disc) | {"colour": kind})) for disc, kind in zip(discs, colours, strict=True)]
        caught, scared = (int((np.asarray(state.fate) == what).sum()) for what in (CAUGHT, SCARED))
        caption = f"step {int(state.clock)}/{HORIZON}, {caught} of {state.fate.size} caught, {scared} scared away"
        numbers = {"step": float(state.clock), "caught": float(caught), "scared": float(scared)}
        legend = "discs: predators; squares: prey for those of that letter; cross: scared away there; ring: catches"
        return Scene(SIDE, SIDE, tuple(shapes), caption=caption, extra=numbers, legend=legend)

    def _observe(self, state: State) -> Observation:
        own = (state.place - MIDDLE).astype(jnp.float32)
        there = state.fate == THERE
        local = jnp.concatenate([own, nearest_of_each_kind(state.place, state.prey, there, self.kinds)], axis=1)
        prey = jnp.where(there[:, None], state.prey - MIDDLE, 0).astype(jnp.float32)
        whole = jnp.concatenate([own.reshape(-1), prey.reshape(-1), there])
        avail = jnp.ones((self.predators, len(ACTIONS)), bool)
        return Observation(local, whole, avail, jnp.arange(self.predators))


def _flee(
    key: Key[Array, ""], place: Int[Array, "a 2"], prey: Int[Array, "p 2"], there: Bool[Array, " p"]
) -> Int[Array, "p 2"]:
    """Now and then prey moves to the cell beside it, or stays, whichever is furthest from the nearest predator; of
    several one at random."""
    moves_key, tie_key = jax.random.split(key)
    number = prey.shape[0]
    options = jnp.stack([walk(prey, jnp.full(number, action), SIDE) for action in range(len(ACTIONS))], axis=1)
    far = jnp.min(steps_between(options.reshape(-1, 2), place), axis=1).reshape(number, -1)
    chosen = jnp.argmax(far + jax.random.uniform(tie_key, far.shape, maxval=0.5), axis=1)
    moves = jax.random.bernoulli(moves_key, FLEES, (number,)) & there
    return jnp.where(moves[:, None], jnp.take_along_axis(options, chosen[:, None, None], axis=1)[:, 0], prey)


def make_predator_prey(variant: str) -> PredatorPrey:
    """Build ``predator_prey/<predators>-<kinds>``."""
    found = re.fullmatch("([0-9]{1,9})-([0-9]{1,9})", variant)
    if found is None:
        raise UserError(
            f"task: 'predator_prey/{variant}' is not <predators>-<kinds>; an example is 'predator_prey/4-2'"
        )
    predators, kinds = int(found[1]), int(found[2])
    limits = (("predators", predators, 2, MOST), ("kinds", kinds, 2, min(max(predators, 2), 8)))
    check_limits(f"predator_prey/{variant}", limits)
    return PredatorPrey(predators, kinds)


def hunt(env: PredatorPrey, state: State) -> Int[Array, " a"]:
    """A good play of unlike predators: each goes to the nearest prey of its kind. It waits beside any other,
    and where one with a lower index enters the cell."""
    there = state.fate == THERE
    own = there & (env.kind[:, None] == env.prey_kind)
    far = steps_between(state.place, state.prey)
    aim = state.prey[jnp.argmin(jnp.where(own, far, 4 * SIDE), axis=1)]
    aim = jnp.where(own.any(axis=1)[:, None], aim, state.place)
    action = towards(state.place, aim)
    enters = (steps_between(walk(state.place, action, SIDE), state.prey) == 0) & there
    waits = enters & (~own | (jnp.cumsum(enters, axis=0) > 1))
    return jnp.where(waits.any(axis=1), 0, action)


def predator_prey_diversity(variant: str) -> Diversity:
    """Alike at most 1/kinds; unlike at least what a simple play earns."""
    env = make_predator_prey(variant)
    reason = (
        "whoever meets a prey is of its kind in one case of k whatever alike predators do, because nothing that they "
        "observe depends on it; unlike predators that hunt their own kind by a simple rule earn at least this"
    )
    return Diversity(1 / env.kinds, _hunted(env), reason, "at least", random=1 / env.kinds)


@functools.cache
def _hunted(env: PredatorPrey) -> float:
    """The mean return of ``hunt``."""

    def episode(key: Key[Array, ""]) -> Array:
        def step(state: State, k: Array) -> tuple[State, None]:
            return env.step(jax.random.fold_in(key, k), state, hunt(env, state))[0], None

        state, _ = jax.lax.scan(step, env.reset(key)[0], jnp.arange(HORIZON))
        return jnp.mean(state.fate == CAUGHT, dtype=jnp.float32)

    keys = jax.random.split(jax.random.key(0), SAMPLES)
    return float(jax.jit(lambda keys: jax.lax.map(episode, keys, batch_size=500).mean())(keys))
