"""MATD3: deterministic actors and an ensemble of centralised critics, learned off-policy from single transitions."""

import functools
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from prism_marl.buffers.nstep import NStep, Transition, distinct
from prism_marl.buffers.ring import Ring, empty_ring
from prism_marl.errors import UserError
from prism_marl.learners.base import Clock, Collection, Deployment, Mode, Settings, Trajectory, shape
from prism_marl.learners.log import Log, all_finite
from prism_marl.learners.matd3_updates import MATD3State, MATD3Updates
from prism_marl.learners.numpy_actors import DensePolicy, NumpyActors, act, dense_policy
from prism_marl.learners.targets import after_change
from prism_marl.networks.mlp import MlpActor
from prism_marl.sharing.base import Experience, Sharing
from prism_marl.sharing.cluster import RECORDS
from prism_marl.types import EnvSpec, Observation


@dataclass(frozen=True)
class MATD3(Settings):
    """Deterministic actors, an ensemble of centralised critics, a replay buffer of transitions."""

    label: ClassVar[str] = "MATD3"
    kinds: ClassVar[tuple[str, ...]] = ("continuous",)  # of actions
    last_action: ClassVar[bool] = False  # actors have no memory and read none
    eval_rule: ClassVar[Literal["exact", "first"]] = "first"  # as the reference: episodes that end early count sooner

    algorithm: Literal["matd3"] = "matd3"
    actor_lr: float = 5e-4  # learning rate of the actors' Adam
    critic_lr: float = 1e-3  # learning rate of the critics' Adam
    gamma: float = 0.99  # discount factor
    n_step: int = 5  # n of n-step returns: rewards that are summed before the critic's value
    batch: int = 1_000  # transitions in the batch of an update
    buffer: int = 1_000_000  # transitions in the replay buffer
    warmup: int = 10_000  # environment steps with random actions before learning
    warmup_on_top: bool = field(default=False, metadata={"since": 2, "before": True})  # warmup is not part of run.steps
    train_interval: int = 50  # steps of every environment between two rounds of updates
    updates: int = 50  # critic updates in one round
    policy_freq: int = 2  # critic updates for each update of actors and targets
    explore: float = 0.1  # standard deviation of the exploration noise
    target_noise: float = 0.2  # standard deviation of the noise on target actions
    target_clip: float = 0.5  # the noise on target actions is clipped to this size
    tau: float = 0.005  # rate of soft target updates
    n_critics: int = 5  # number of critics: targets use their minimum, the loss is the sum of their errors
    critic_width: int = 256  # hidden units of each critic
    critic_layernorm: bool = False  # LayerNorm in the critics; those of Kaleidoscope always have it
    actor_q: Literal["mean", "first"] = "mean"  # actors maximise the mean of all critics, or the first
    repeat_shared_polyak: bool = True  # update a shared target actor once for each agent, as the reference code does
    standardise_inputs: bool = True  # standardise each input vector by its own mean and deviation, id included
    overlap: bool = False  # collect with the previous actors while updates run: faster, but another algorithm

    def learner(self, sharing: Sharing, spec: EnvSpec, *, width: int, rows: int = 1, steps: int = 0) -> "MATD3Learner":
        """The learner that these settings stand for."""
        if sharing.by_role() and spec.roles != spec.agents:
            raise UserError(f"sharing.{sharing.role_setting}: MATD3 trains agents one by one; set it to 'agent'")
        return MATD3Learner(self, sharing, spec, width, rows, steps)

    def validate(self, spec: EnvSpec, envs: int) -> None:
        """Everything that would otherwise fail inside the compiler."""
        if spec.kind != "continuous":
            raise UserError(
                f"learner.algorithm: MATD3 needs continuous actions, but '{spec.name}' has discrete ones; use qmix"
            )
        whole = ("n_step", "batch", "buffer", "train_interval", "updates", "policy_freq", "n_critics", "critic_width")
        for name in ("actor_lr", "critic_lr", *whole):
            if getattr(self, name) <= 0:
                raise UserError(
                    f"learner.{name}: {getattr(self, name)} is not positive; the default is {getattr(MATD3, name)}"
                )
        for name in ("explore", "target_noise", "target_clip"):
            if getattr(self, name) < 0:
                raise UserError(
                    f"learner.{name}: {getattr(self, name)} is negative; the default is {getattr(MATD3, name)}"
                )
        for name in ("gamma", "tau"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(
                    f"learner.{name}: {getattr(self, name)} is outside [0, 1]; the default is {getattr(MATD3, name)}"
                )
        if self.warmup < self.batch:
            raise UserError(
                f"learner.warmup: {self.warmup} steps do not fill a batch of {self.batch}; raise it to {self.batch}"
            )
        if self.buffer % envs or self.buffer < self.batch:
            near = -(-max(self.buffer, self.batch) // envs) * envs
            raise UserError(
                f"learner.buffer: {self.buffer} is no multiple of run.envs ({envs}) that holds a batch of "
                f"{self.batch}; the nearest valid value is {near}"
            )
        if self.train_interval * envs > self.buffer:
            raise UserError(
                f"learner.train_interval: {self.train_interval} steps of {envs} environments do not fit a buffer of "
                f"{self.buffer}; lower it to {self.buffer // envs}"
            )


@dataclass(frozen=True)
class MATD3Learner(MATD3Updates):
    """MATD3 for one task and one sharing method: rounds of updates, one for each collection."""

    steps: int = 0  # environment steps of a whole run (run.steps); 0 = not known

    @property
    def collection(self) -> Collection:
        s = self.settings
        return Collection("steps", s.train_interval, s.warmup, s.warmup_on_top, s.overlap)

    @property
    def interval(self) -> int:  # in environment steps
        return self.settings.train_interval * self.rows

    @property
    def metrics(self) -> tuple[str, ...]:
        return _metrics(self)

    @property
    def checks(self) -> tuple[str, ...]:
        return ("gradient",)

    def counters(self) -> tuple[Array, Array]:
        """Critic updates, and the environment step at which a critic last got a fresh start."""
        return jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)

    def key(self, state: MATD3State, clock: Clock, purpose: str) -> tuple[MATD3State, Key[Array, ""]]:
        """Every key is folded from the training key and the iteration."""
        key = jax.random.fold_in(state.key, 2**31 - 1) if purpose == "change" else state.key
        return state, jax.random.fold_in(key, clock.iteration)

    def policy(self, state: MATD3State) -> DensePolicy:
        return dense_policy(state.online.agent, self.spec.agents)

    def numpy(self) -> NumpyActors:
        return NumpyActors(self.spec, self.views, self.settings.explore)

    def memory(self, policy: DensePolicy, *batch: int) -> tuple[()]:
        return ()

    def act(
        self,
        policy: DensePolicy,
        memory: tuple[()],
        obs: Observation,
        key: Key[Array, ""],
        step: Int[Array, ""],
        mode: Mode,
    ) -> tuple[tuple[()], Float[Array, "b a u"], tuple[()]]:
        """The actors' actions, with Gaussian noise where training explores."""
        sizes = (obs.state.shape[0], self.spec.agents, self.spec.actions)
        if mode == "random":
            return (), jax.random.uniform(key, sizes, minval=-1.0, maxval=1.0), ()
        action = act(policy, self.views.agents(obs.local, obs.state, jnp.arange(self.spec.agents)))
        if mode == "explore":
            action = jnp.clip(action + self.settings.explore * jax.random.normal(key, sizes), -1, 1)
        return (), action, ()

    def template(self) -> Trajectory:
        """Shapes and types of an interval of one environment."""
        stored, steps = self.views.stored(), self.settings.train_interval
        along = jax.tree.map(lambda leaf: shape(steps, *leaf.shape, dtype=leaf.dtype), stored)
        none = shape(steps, 0, dtype=bool)
        flag = shape(steps, dtype=bool)
        return Trajectory(
            obs=Observation(along.local, along.state, none, none),
            next_obs=Observation(along.next_local, along.next_state, none, none),
            action=along.action,
            reward=along.reward,
            agent_reward=None,
            terminated=flag,
            truncated=flag,
            valid=flag,
        )

    def buffer(self) -> Ring[Transition]:
        return empty_ring(self.views.stored(), self.settings.buffer)

    def add(self, buffer: Ring[Transition], batch: Trajectory) -> Ring[Transition]:
        """Store transitions [t, b, ...]; those of one step lie side by side."""
        assert batch.next_obs is not None and batch.truncated is not None
        parts = Transition(
            local=batch.obs.local,
            state=batch.obs.state,
            action=batch.action,
            reward=batch.reward,
            done=batch.terminated | batch.truncated,
            terminated=batch.terminated,
            next_local=batch.next_obs.local,
            next_state=batch.next_obs.state,
        )
        return buffer.add(jax.tree.map(lambda leaf: leaf.reshape(math.prod(leaf.shape[:2]), *leaf.shape[2:]), parts))

    def update(
        self, state: MATD3State, buffer: Ring[Transition], batch: Any, log: Log, step: Int[Array, ""], clock: Clock
    ) -> tuple[MATD3State, Log, Clock]:
        """A round: all batches are chosen first, then critics and actors learn from one after the other."""
        del batch, step  # the same for all seeds here, so it comes from the clock
        settings, step = self.settings, clock.iteration * self.interval
        updates, reset_at = clock.own
        keys = jax.random.split(self.key(state, clock, "update")[1], 3)
        state, reset_at = self._reset_critic(state, keys[0], step, reset_at)
        along = (
            self._chains(keys[1], buffer),
            jax.random.split(keys[2], settings.updates),
            updates + 1 + jnp.arange(settings.updates),
        )
        state, log = self._round((state, log), buffer, step, along)
        # A gradient that is not finite stays in Adam's moments, so one look at these serves the whole round.
        log = log.check({"gradient": all_finite((state.actor_optimiser, state.critic_optimiser))}, step)
        own = (updates + settings.updates, reset_at)
        return state, log, clock._replace(summed=clock.summed + settings.updates, own=own)

    def _chains(self, key: Key[Array, ""], ring: Ring[Transition]) -> NStep:
        """Where all batches of a round come from, at once: redrawing repeated places is a loop that a GPU has to ask
        the host about, and walking along chains is many small reads."""
        settings = self.settings
        return self.chains(ring, distinct(key, ring.count, (settings.updates, settings.batch)))

    def _round(self, carry: tuple[MATD3State, Log], ring: Ring[Transition], step: Int[Array, ""], along: Any):
        """All updates of an interval, one after the other; ``along`` is (chains, noise, number) of each.

        Where every interval has its actor updates at the same places, the loop is written with them in these places: a
        question whether it is time would have a GPU ask the host at every update.
        """
        every = self.settings.policy_freq

        def one(carry, now):
            carry, batch = self._critics(carry, ring, step, *now[:2])
            return jax.lax.cond(
                now[2] % every == 0, lambda carry: self._actors(carry, batch, step), lambda carry: carry, carry
            ), None

        def quiet(carry, now):
            return self._critics(carry, ring, step, *now)[0], None

        def several(carry, now):
            before, last = jax.tree.map(lambda leaf: leaf[:-1], now), jax.tree.map(lambda leaf: leaf[-1], now)
            carry, _ = jax.lax.scan(quiet, carry, before)
            carry, batch = self._critics(carry, ring, step, *last)
            return self._actors(carry, batch, step), None

        if self.settings.updates % every:
            return jax.lax.scan(one, carry, along)[0]
        in_groups = jax.tree.map(lambda leaf: leaf.reshape(-1, every, *leaf.shape[1:]), along[:2])
        return jax.lax.scan(several, carry, in_groups)[0]

    def _critics(self, carry: tuple[MATD3State, Log], ring: Ring[Transition], step, chains: NStep, key):
        """One critic update, and the batch it was made with."""
        state, log = carry
        batch = self.read(ring, chains)
        state, metrics = self.update_critics(state, batch, key)
        return (state, log.add(metrics, step)), batch

    def _actors(self, carry: tuple[MATD3State, Log], batch: Any, step) -> tuple[MATD3State, Log]:
        """One update of all actors. Sums are divided by the number of critic updates, and only one in so many of them
        comes here."""
        state, log = carry
        state, metrics = self.update_actors(state, batch, step)
        return state, log.add(metrics, step, weight=self.settings.policy_freq)

    def _reset_critic(self, state: MATD3State, key: Key[Array, ""], step: Int[Array, ""], reset_at: Int[Array, ""]):
        """A fresh start for one critic, when it is time and more than another interval of training is left; never for
        methods whose critics have none."""
        every = self.critic_sharing.refresh_interval()
        if not every:
            return state, reset_at
        due = step - reset_at >= every
        if self.steps:
            due &= self.steps + self.settings.warmup * self.settings.warmup_on_top - step > every
        state = jax.lax.cond(due, self.reset_critic, lambda state, key: state, state, key)
        return state, jnp.where(due, step, reset_at)

    def agent(self, state: MATD3State) -> MlpActor:
        return state.online.agent

    def deployment(self, state: MATD3State) -> Deployment:
        """The actors' own vector; training adds noise."""
        noise, standardise = self.settings.explore, self.views.standardise
        return Deployment(state.online.agent, self.views.inputs, "direct", "noise", noise, 1.0, standardise)

    def with_agent(self, state: MATD3State, agent: MlpActor) -> MATD3State:
        target = after_change(state.target.agent, state.online.agent, agent, self.sharing)
        return eqx.tree_at(lambda s: (s.online.agent, s.target.agent), state, (agent, target))

    def experience(self, buffer: Ring[Transition]) -> Experience:
        """The newest transitions."""
        number = min(self.settings.buffer, max(1, RECORDS // self.spec.agents))
        return self.views.experience(buffer.newest(number), jnp.arange(number) < buffer.count)

    def row(self, step: int) -> dict[str, float]:
        return {}


@functools.lru_cache(maxsize=8)
def _metrics(learner: MATD3Learner) -> tuple[str, ...]:
    """Names of what updates report; asked by tracing them, which takes a while."""

    def both(state: MATD3State) -> dict[str, Any]:
        ring = empty_ring(learner.views.stored(), learner.rows)
        batch = learner.read(ring, learner.chains(ring, jnp.zeros(1, jnp.int32)))
        _, first = learner.update_critics(state, batch, jax.random.key(0))
        return first | learner.update_actors(state, batch, jnp.zeros((), jnp.int32))[1]

    return tuple(sorted(jax.eval_shape(both, jax.eval_shape(learner.init, jax.random.key(0)))))
