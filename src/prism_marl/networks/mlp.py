"""The feed-forward network: three layers, and a tanh where it is MATD3's deterministic actor."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from prism_marl.sharing.base import Identity, Kind, RoleLinear, Sharing, private
from prism_marl.sharing.single import single


class Norm(eqx.Module):
    """LayerNorm over the last axis."""

    scale: Float[Array, "*m h"]
    shift: Float[Array, "*m h"]

    def __call__(self, x: Float[Array, "*b h"]) -> Float[Array, "*b h"]:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * self.scale + self.shift


class MlpActor(eqx.Module):
    """An action vector in [-1, 1] from one observation; without ``squash`` plain outputs, as logits and values are."""

    fc1: RoleLinear
    fc2: RoleLinear
    fc3: RoleLinear
    unused_norms: tuple[Norm, Norm] | None  # never applied, but the published counts include them
    by_role: bool = eqx.field(static=True)
    clusters: Int[Array, " a"] | None = private()  # identity of each agent for cluster methods
    squash: bool = eqx.field(static=True, default=True)  # through tanh in the end

    @property
    def chain(self) -> tuple[str, ...]:
        """The layers in order, for export."""
        return ("fc1", "relu", "fc2", "relu", "fc3", *(("tanh",) if self.squash else ()))

    def __call__(self, x: Float[Array, "*b a i"], role: Int[Array, "*b a"]) -> Float[Array, "*b a u"]:
        x = self.once(x, role if self.by_role else self.clusters)
        return jnp.tanh(x) if self.squash else x

    def once(self, x: Float[Array, "*b m i"], identity: Identity = None) -> Float[Array, "*b m u"]:
        """What the last layer says, each identity or those that are named, before any tanh."""
        x = jax.nn.relu(self.fc1(x, identity))
        x = jax.nn.relu(self.fc2(x, identity))
        return self.fc3(x, identity)

    def identity_of(self, agent: Int[Array, ""]) -> Int[Array, ""]:
        """The identity of the agent with this index, for methods in which it does not depend on the observation."""
        return agent if self.clusters is None else self.clusters[agent]

    def alone(self, identity: Int[Array, ""]) -> "MlpActor":
        """The network of one identity, for inputs whose agent axis has length one."""
        return replace(single(self, identity), clusters=None, by_role=False)


def mlp_actor(
    sharing: Sharing,
    *,
    inputs: int,
    actions: int,
    width: int,
    agents: int,
    roles: int,
    key: Key[Array, ""],
    clusters: Int[Array, " a"] | None = None,
    head: Kind = "actions",
    squash: bool = True,
) -> MlpActor:
    """Build the feed-forward network of one sharing method."""
    keys = jax.random.split(key, 3)
    identities = sharing.identities(agents, roles)

    def linear(index, fan_in, fan_out, kind):
        return sharing.linear(fan_in, fan_out, identities=identities, key=keys[index], kind=kind, depth=index)

    norms = tuple(Norm(jnp.ones(width), jnp.zeros(width)) for _ in range(2))
    return MlpActor(
        fc1=linear(0, inputs, width, "hidden"),
        fc2=linear(1, width, width, "hidden"),
        fc3=linear(2, width, actions, head),
        unused_norms=(norms[0], norms[1]) if sharing.unused_norms else None,
        clusters=sharing.initial_clusters(agents) if clusters is None else clusters,
        by_role=sharing.by_role(),
        squash=squash,
    )
