"""The recurrent agent: fc1, GRU, fc2, fc3, fc4 ("1R3" in the reference implementation of QMIX). Its outputs are action
values, or logits and means of a policy (networks/heads.py), or one value of the state."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from prism_marl.networks.gru import Fresh, RoleGRU, unroll, unroll_pair
from prism_marl.sharing.base import Identity, Kind, RoleLinear, Sharing, private


class RecurrentAgent(eqx.Module):
    """Action values from a stream of observations."""

    fc1: RoleLinear
    gru: RoleGRU
    fc2: RoleLinear
    fc3: RoleLinear | None  # policies may do without
    fc4: RoleLinear
    by_role: bool = eqx.field(static=True)
    width: int = eqx.field(static=True)
    clusters: Int[Array, " a"] | None = private()  # identity of each agent for cluster methods

    @property
    def chain(self) -> tuple[str, ...]:
        """The layers in order, for export."""
        return ("fc1", "relu", "gru", "fc2", "relu", *(() if self.fc3 is None else ("fc3", "relu")), "fc4")

    def initial(self, *shape: int) -> Float[Array, "*b a h"]:
        """The hidden state before the first observation; ``shape`` is batch and agents."""
        return jnp.zeros((*shape, self.width))

    def identity(self, role: Int[Array, "*b a"]) -> Identity:
        """The current identity of each agent."""
        return role if self.by_role else self.clusters

    def __call__(
        self, h: Float[Array, "*b a h"], x: Float[Array, "*b a i"], role: Int[Array, "*b a"]
    ) -> tuple[Float[Array, "*b a h"], Float[Array, "*b a u"]]:
        """One step: next hidden state and action values."""
        identity = self.identity(role)
        h = self.gru.cell(self._before(x, identity), h, identity)
        return h, self._after(h, identity)

    def unroll(
        self, x: Float[Array, "t *b a i"], role: Int[Array, "t *b a"], fresh: Fresh = None
    ) -> Float[Array, "t *b a u"]:
        """Action values over whole episodes from a zero state; ``fresh`` says where further ones begin.

        Everything that does not depend on the state is computed for all steps at once; only the hidden half of the GRU
        is scanned.
        """
        identity, start = self.identity(role), self.initial(*x.shape[1:-1])
        return self._after(unroll(self.gru, self._before(x, identity), start, identity, fresh), identity)

    def unroll_with(
        self,
        companion: "RecurrentAgent",
        x: Float[Array, "t *b a i"],
        role: Int[Array, "t *b a"],
        fresh: Fresh = None,
    ) -> tuple[Float[Array, "t *b a u"], Float[Array, "t *b a u"]]:
        """``unroll`` of this and of a second network whose recurrence gets no gradient."""
        identity, start = self.identity(role), self.initial(*x.shape[1:-1])
        inputs, companion_inputs = self._before(x, identity), companion._before(x, identity)
        hidden, others = unroll_pair(self.gru, inputs, companion.gru, companion_inputs, start, identity, fresh)
        return self._after(hidden, identity), companion._after(others, identity)

    def unroll_from(
        self,
        start: Float[Array, "*b a h"],
        x: Float[Array, "t *b a i"],
        role: Int[Array, "t *b a"],
        fresh: Fresh,
    ) -> tuple[Float[Array, "t *b a h"], Float[Array, "t *b a u"]]:
        """States after every step, and outputs, over steps in which episodes may begin: ``fresh`` says where."""
        identity = self.identity(role)
        hidden = unroll(self.gru, self._before(x, identity), start, identity, fresh)
        return hidden, self._after(hidden, identity)

    def once(self, x: Float[Array, "*b m i"], identity: Identity = None) -> Float[Array, "*b m u"]:
        """What the network says to single inputs without a past, each identity or those that are named."""
        h = self.gru.cell(self._before(x, identity), self.initial(*x.shape[:-1]), identity)
        return self._after(h, identity)

    def _before(self, x: Float[Array, "*b a i"], identity: Identity) -> Float[Array, "*b a g"]:
        return self.gru.input(jax.nn.relu(self.fc1(x, identity)), identity)

    def _after(self, h: Float[Array, "*b a h"], identity: Identity) -> Float[Array, "*b a u"]:
        x = jax.nn.relu(self.fc2(h, identity))
        x = x if self.fc3 is None else jax.nn.relu(self.fc3(x, identity))
        return self.fc4(x, identity)


def recurrent_agent(
    sharing: Sharing,
    *,
    inputs: int,
    actions: int,
    width: int,
    agents: int,
    roles: int,
    key: Key[Array, ""],
    clusters: Int[Array, " a"] | None = None,
    head: Kind = "values",
    behind: int = 2,
) -> RecurrentAgent:
    """Build the agent network of one sharing method; ``behind`` is 2 or 1 hidden layers behind the GRU."""
    keys = dict(zip(("fc1", "input", "hidden", "gate", "fc2", "fc3", "fc4"), jax.random.split(key, 7), strict=True))
    identities = sharing.identities(agents, roles)

    def linear(name, fan_in, fan_out, kind, depth):
        return sharing.linear(fan_in, fan_out, identities=identities, key=keys[name], kind=kind, depth=depth)

    return RecurrentAgent(
        fc1=linear("fc1", inputs, width, "input", 0),
        gru=RoleGRU(
            input=linear("input", width, 3 * width, "recurrent", 0),
            hidden=linear("hidden", width, 3 * width, "recurrent", 0),
            gate=sharing.gate(width, identities=identities, key=keys["gate"]),
        ),
        fc2=linear("fc2", width, width, "hidden", 1),
        fc3=linear("fc3", width, width, "hidden", 2) if behind == 2 else None,
        fc4=linear("fc4", width, actions, head, 1 + behind),
        clusters=sharing.initial_clusters(agents) if clusters is None else clusters,
        by_role=sharing.by_role(),
        width=width,
    )
