"""The compiled half of training with transitions: store an interval of all seeds, make the updates it pays for."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from prism_marl.buffers.nstep import NStep, Transition, distinct
from prism_marl.buffers.ring import Ring, empty_ring
from prism_marl.collect.numpy_policy import DensePolicy, plain
from prism_marl.learners.matd3 import MATD3Learner
from prism_marl.sharing.host_svd import Call, call_now, draw
from prism_marl.training.finite import all_finite, no_faults, record_faults, record_values
from prism_marl.training.trainer import SeedState

Counters = tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""], Int[Array, ""]]
"""Intervals, updates behind ``SeedState.sums``, critic updates, and the step of the latest fresh start of a critic."""


@dataclass(frozen=True)
class Learning:
    """What happens on the accelerator. Seeds are the first axis of everything but the counters."""

    learner: MATD3Learner
    envs: int

    @property
    def interval(self) -> int:
        """Environment steps of every seed between two rounds of updates."""
        return self.learner.settings.train_interval * self.envs

    def init(self, numbers: Int[Array, " n"], call: Call = call_now) -> SeedState:
        """Fresh networks and empty rings. The keys never change: counters tell their uses apart."""
        learner, settings = self.learner, self.learner.settings

        def one(key) -> SeedState:
            key_learner, key_train = jax.random.split(key)
            state = learner.init(key_learner)
            metrics = self._metrics(state)
            return SeedState(
                learner=state,
                replay=empty_ring(learner.empty_transition(), settings.buffer),
                key=key_train,
                steps=jnp.zeros((), jnp.int32),
                sums={name: jnp.zeros(()) for name in metrics},
                faults=no_faults([*metrics, "gradient"]),
            )

        return draw(one, jax.vmap(jax.random.key)(numbers), call)

    def _metrics(self, state) -> list[str]:
        def both(state):
            ring = empty_ring(self.learner.empty_transition(), self.envs)
            batch = self.learner.read(ring, self.learner.chains(ring, jnp.zeros(1, jnp.int32), self.envs))
            _, first = self.learner.update_critics(state, batch, jax.random.key(0))
            return first | self.learner.update_actors(state, batch, jnp.zeros((), jnp.int32))[1]

        return sorted(jax.eval_shape(both, state))

    def block(self, seeds: int) -> Transition:
        """Shapes of the transitions of one interval."""
        rows = (seeds, self.interval)
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((*rows, *leaf.shape), leaf.dtype), self.learner.empty_transition()
        )

    def plain(self, seeds: SeedState) -> DensePolicy:
        """The actors as matrices for the host."""
        return jax.vmap(lambda actor: plain(actor, self.learner.spec.agents))(seeds.learner.online.agent)

    def store(self, seeds: SeedState, counters: Counters, block: Transition) -> tuple[SeedState, Counters]:
        """Keep an interval without learning from it yet."""
        iteration, summed, updates, renewed = counters
        ring = jax.vmap(lambda ring, items: ring.add(items))(seeds.replay, block)
        steps = jnp.full_like(seeds.steps, (iteration + 1) * self.interval)
        seen = (block.local, block.state, block.next_local, block.next_state)
        sound = {"observation": jax.vmap(all_finite)(seen), "reward": jax.vmap(all_finite)(block.reward)}
        seeds = SeedState(seeds.learner, ring, seeds.key, steps, seeds.sums, record_faults(seeds.faults, sound, steps))
        return seeds, (iteration + 1, summed, updates, renewed)

    def learn(self, seeds: SeedState, counters: Counters, block: Transition) -> tuple[SeedState, Counters, DensePolicy]:
        """Keep an interval, make a round of updates, and return the actors that come out of it."""
        seeds, (iteration, summed, updates, renewed) = self.store(seeds, counters, block)
        settings, ring, steps = self.learner.settings, seeds.replay, iteration * self.interval
        keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, iteration), 3))(seeds.key)
        learner, renewed = self._renew(seeds.learner, keys[:, 0], steps, renewed)
        chains = jax.vmap(self._chains)(keys[:, 1], ring)
        noise = jax.vmap(lambda key: jax.random.split(key, settings.updates))(keys[:, 2])

        chains, noise = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (chains, noise))
        along = (chains, noise, updates + 1 + jnp.arange(settings.updates))
        learner, sums, faults = self._round((learner, seeds.sums, seeds.faults), ring, steps, along)
        # A gradient that is not finite stays in Adam's moments, so one look at these serves the whole round.
        moments = jax.vmap(all_finite)((learner.actor_optimiser, learner.critic_optimiser))
        seeds = SeedState(
            learner, ring, seeds.key, seeds.steps, sums, record_faults(faults, {"gradient": moments}, steps)
        )
        counters = (iteration, summed + settings.updates, updates + settings.updates, renewed)
        return seeds, counters, self.plain(seeds)

    def _chains(self, key, ring: Ring[Transition]) -> NStep:
        """Where all batches of a round come from, at once: redrawing repeated places is a loop that a GPU has to ask
        the host about, and walking along chains is many small reads."""
        settings = self.learner.settings
        places = distinct(key, ring.count, (settings.updates, settings.batch))
        return self.learner.chains(ring, places, self.envs)

    def _round(self, carry, ring, steps, along):
        """All updates of an interval, one after the other; ``along`` is (chains, noise, number) of each.

        Where every interval has its actor updates at the same places, the loop is written with them in these places: a
        question whether it is time would have a GPU ask the host at every update.
        """
        every = self.learner.settings.policy_freq

        def one(carry, now):
            carry, batch = self._critics(carry, ring, steps, *now[:2])
            return jax.lax.cond(
                now[2] % every == 0, lambda carry: self._actors(carry, batch, steps), lambda carry: carry, carry
            ), None

        def quiet(carry, now):
            return self._critics(carry, ring, steps, *now)[0], None

        def several(carry, now):
            before, last = jax.tree.map(lambda leaf: leaf[:-1], now), jax.tree.map(lambda leaf: leaf[-1], now)
            carry, _ = jax.lax.scan(quiet, carry, before)
            carry, batch = self._critics(carry, ring, steps, *last)
            return self._actors(carry, batch, steps), None

        if self.learner.settings.updates % every:
            return jax.lax.scan(one, carry, along)[0]
        in_groups = jax.tree.map(lambda leaf: leaf.reshape(-1, every, *leaf.shape[1:]), along[:2])
        return jax.lax.scan(several, carry, in_groups)[0]

    def _critics(self, carry, ring, steps, chains, keys):
        """One critic update of all seeds, and the batch it was made with."""
        learner, sums, faults = carry
        batch = jax.vmap(self.learner.read)(ring, chains)
        learner, metrics = jax.vmap(self.learner.update_critics)(learner, batch, keys)
        sums = sums | {name: sums[name] + value for name, value in metrics.items()}
        return (learner, sums, record_values(faults, metrics, steps)), batch

    def _actors(self, carry, batch, steps):
        """One update of all actors of all seeds."""
        learner, sums, faults = carry
        learner, metrics = jax.vmap(self.learner.update_actors, (0, 0, None))(learner, batch, steps)
        # Sums are divided by the number of critic updates, and only one in so many of them comes here.
        every = self.learner.settings.policy_freq
        sums = sums | {name: sums[name] + every * value for name, value in metrics.items()}
        return learner, sums, record_values(faults, metrics, steps)

    def _renew(self, learner, keys, steps, renewed):
        """A fresh start for one critic, when it is time; never for methods whose critics have none."""
        every = self.learner.critic_sharing.refresh_interval()
        if not every:
            return learner, renewed
        due = steps - renewed >= every
        fresh = jax.vmap(self.learner.renew_critic)
        learner = jax.lax.cond(due, fresh, lambda learner, keys: learner, learner, keys)
        return learner, jnp.where(due, steps, renewed)
