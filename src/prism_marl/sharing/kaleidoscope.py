"""Kaleidoscope: every identity learns a threshold for every weight of a shared matrix (Li et al., NeurIPS 2024)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from prism_marl.errors import UserError
from prism_marl.sharing.base import (
    Identity,
    Penalties,
    RoleLinear,
    Sharing,
    apply_per_identity,
    check_identity,
    map_layers,
    private,
    uniform_weight,
)
from prism_marl.sharing.differences import pairwise_difference
from prism_marl.sharing.estimators import step_function
from prism_marl.sharing.fups import shared_linear


def sample_thresholds(key: Key[Array, ""], shape: tuple[int, ...], scale: float, shift: float) -> Float[Array, "..."]:
    """Thresholds far below zero, so that sigmoid(t) starts near 0 and almost no weight is masked."""
    return -(scale * jax.random.uniform(key, shape) + shift)


class ThresholdLinear(RoleLinear):
    """W_m = sign(W) * relu(|W| - sigmoid(t_m)): weights below an identity's threshold become 0, others shrink."""

    weight: Float[Array, "o i"]
    bias: Float[Array, " o"]
    threshold: Float[Array, "m o i"] = private()
    identities: int = eqx.field(static=True)
    layer_weight: float = eqx.field(static=True, default=1.0)
    resets: bool = eqx.field(static=True, default=True)  # takes part in the periodic resets

    def dense(self) -> Float[Array, "m o i"]:
        return jnp.sign(self.weight) * jax.nn.relu(jnp.abs(self.weight) - jax.nn.sigmoid(self.threshold))

    def dense_bias(self) -> Float[Array, "m o"]:
        return jnp.broadcast_to(self.bias, (self.identities, *self.bias.shape))

    def __call__(self, x: Float[Array, "*b a i"], identity: Identity = None) -> Float[Array, "*b a o"]:
        check_identity(self, x, identity)
        return apply_per_identity(x, self.dense(), identity) + self.bias

    def on(self) -> Float[Array, "m o i"]:
        """1 where an identity keeps a weight; gradients reach the thresholds only."""
        magnitude = jax.lax.stop_gradient(jnp.abs(self.weight))
        return step_function(magnitude - jax.nn.sigmoid(self.threshold), "tanh")

    def diversity(self) -> tuple[Float[Array, ""], int]:
        magnitude = jax.lax.stop_gradient(jnp.abs(self.weight))
        return self.layer_weight * pairwise_difference(self.on(), magnitude), self.weight.size


@dataclass(frozen=True)
class Kaleidoscope(Sharing):
    """One learned mask per agent on all weights, and a diversity term that makes the masks differ."""

    label: ClassVar[str] = "Kaleidoscope"
    unused_norms: ClassVar[bool] = True

    method: Literal["kaleidoscope"] = "kaleidoscope"
    diversity: float = 5.0  # size of the diversity term relative to the task loss
    window: int = 100  # number of recent losses that the adaptive scale averages
    layer_base: float = 2.0  # weight of layer l (from 0) in the diversity term is layer_base**l
    threshold_scale: float = 5.0  # initial thresholds are -(scale * u + shift), u uniform in [0, 1]
    threshold_shift: float = 5.0  # the larger, the fewer weights are masked at the start of training
    reset_interval: int = 1_000_000  # environment steps between resets; 0 = never
    reset_ratio: float = 0.2  # probability that a weight which no identity uses is sampled again
    masks: Literal["agent", "role"] = "agent"  # one mask per agent, or one per unit type
    mask_critics: bool = True  # MATD3's critics are masks on one network, with LayerNorm; False: separate critics
    critic_diversity: float = 0.1  # size of the diversity term of the critics
    critic_threshold_scale: float = 20.0  # initial thresholds of critics are -(scale * u + shift), u uniform in [0, 1]
    critic_threshold_shift: float = 0.0  # with 0 the masks of the critics differ from the start
    critic_reset_interval: int = 800_000  # environment steps until the next critic gets new thresholds; 0 = never

    def validate(self) -> None:
        if not 0 <= self.reset_ratio <= 1:
            raise UserError(f"sharing.reset_ratio: {self.reset_ratio} is outside [0, 1]; the authors use 0.1 to 0.5")
        if self.window < 1:
            raise UserError(f"sharing.window: {self.window} is not a positive number of losses; the authors use 100")

    def identities(self, agents: int, roles: int) -> int:
        return roles if self.by_role() else agents

    def by_role(self) -> bool:
        return self.masks == "role"

    def penalties(self) -> Penalties:
        return Penalties(diversity=self.diversity, window=self.window)

    def refresh_interval(self) -> int:
        return self.reset_interval

    def refresh(self, network, experience, key):
        return map_layers(
            lambda index, layer: self._reset_weights(layer, jax.random.fold_in(key, index)), network, ThresholdLinear
        )

    def _reset_weights(self, layer: ThresholdLinear, key: Key[Array, ""]) -> ThresholdLinear:
        """Sample weights that every identity has masked out again, each with probability ``reset_ratio``, together with
        their thresholds of all identities."""
        if not layer.resets:
            return layer
        key_chance, key_weight, key_threshold = jax.random.split(key, 3)
        shape = layer.weight.shape
        unused = jnp.all(layer.on() == 0, axis=0)
        chosen = unused & jax.random.bernoulli(key_chance, self.reset_ratio, shape)
        weight = uniform_weight(key_weight, *shape, fan_in=shape[1])
        threshold = sample_thresholds(key_threshold, layer.threshold.shape, self.threshold_scale, self.threshold_shift)
        return replace(
            layer,
            weight=jnp.where(chosen, weight, layer.weight),
            threshold=jnp.where(chosen, threshold, layer.threshold),
        )

    def critics(self) -> "Kaleidoscope | None":
        if not self.mask_critics:
            return None
        return Kaleidoscope(
            diversity=self.critic_diversity,
            window=self.window,
            layer_base=self.layer_base,
            threshold_scale=self.critic_threshold_scale,
            threshold_shift=self.critic_threshold_shift,
            reset_interval=self.critic_reset_interval,
        )

    def reset_critic(self, network, identity, key):
        """Sample all thresholds of one identity again; weights stay."""

        def reset_thresholds(index: int, layer: ThresholdLinear) -> ThresholdLinear:
            key_layer, shape = jax.random.fold_in(key, index), layer.threshold.shape[1:]
            threshold = sample_thresholds(key_layer, shape, self.threshold_scale, self.threshold_shift)
            return replace(layer, threshold=layer.threshold.at[identity].set(threshold))

        return map_layers(reset_thresholds, network, ThresholdLinear)

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth) -> RoleLinear:
        key_shared, key_threshold = jax.random.split(key)
        shared = shared_linear(fan_in, fan_out, identities=identities, key=key_shared)
        if kind == "recurrent":
            return shared
        return ThresholdLinear(
            weight=shared.weight,
            bias=shared.bias,
            threshold=sample_thresholds(
                key_threshold, (identities, fan_out, fan_in), self.threshold_scale, self.threshold_shift
            ),
            identities=identities,
            layer_weight=self.layer_base**depth,
            resets=kind != "input",
        )
