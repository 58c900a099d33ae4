"""What is wrong with a sharing method of the user's is one sentence, before anything is compiled for training."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
import pytest

from prism_marl.envs import describe
from prism_marl.errors import UserError
from prism_marl.experiment.checks import check_method
from prism_marl.learners import QMix
from prism_marl.runs import runner
from prism_marl.sharing import METHODS, RoleLinear, Sharing
from prism_marl.sharing.base import Penalties, private, select_rows, uniform_weight
from tiny import small

SPEC = describe("roles/4")
M = SPEC.agents


class Layer(RoleLinear):
    """One matrix for all, a bias for each."""

    weight: jnp.ndarray
    bias: jnp.ndarray = private()
    identities: int = eqx.field(static=True)

    def dense(self):
        return jnp.broadcast_to(self.weight, (self.identities, *self.weight.shape))

    def dense_bias(self):
        return self.bias

    def __call__(self, x, identity=None):
        return x @ self.weight.T + select_rows(self.bias, identity)


@dataclass(frozen=True)
class Good(Sharing):
    label: ClassVar[str] = "Good"
    layer: ClassVar[type] = Layer
    method: Literal["good"] = "good"

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth):
        weight = uniform_weight(key, fan_out, fan_in, fan_in=fan_in)
        return self.layer(weight=weight, bias=jnp.zeros((identities, fan_out)) + 0.1, identities=identities)


def with_layer(**parts):
    """The method with another layer class."""
    return type("Bad", (Good,), {"layer": type("BadLayer", (Layer,), parts)})()


def with_method(**parts):
    """The method with other functions."""
    return type("Bad", (Good,), parts)()


def forgets_dense(self):
    return jnp.zeros((self.identities, *self.weight.shape))


def ignores_identity(self, x, identity=None):
    return x @ self.weight.T + jnp.mean(self.bias, axis=0)


def needs_an_array(self, x, identity=None):
    return x @ self.weight.T + jnp.take(self.bias, identity, axis=0)


def only_hidden(self, x, identity=None):
    """Wrong at one place of the network alone."""
    scale = 2.0 if self.weight.shape == (16, 16) else 1.0
    return scale * (x @ self.weight.T) + select_rows(self.bias, identity)


def own_linear(**changes):
    """``linear`` with other arguments for the layer."""

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth):
        weight = uniform_weight(key, fan_out, fan_in, fan_in=fan_in)
        own = {"weight": weight, "bias": jnp.zeros((identities, fan_out)), "identities": identities}
        return Layer(**(own | {name: change(own) for name, change in changes.items()}))

    return linear


def test_a_method_that_keeps_its_promises_passes():
    check_method(Good(), SPEC, width=8)
    check_method(Good(), describe("reach_jax/3"), width=8)
    learner = QMix(batch=2, buffer=4, embed=4, hypernet=4).learner(Good(), SPEC, width=8)
    check_method(Good(), SPEC, learner=learner)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (with_layer(dense=forgets_dense), r"BadLayer \(kind 'input', depth 0\): __call__ .* differs from dense\(\)"),
        (with_layer(dense_bias=lambda self: 2 * self.bias), "__call__ without an identity array differs"),
        (with_layer(dense=lambda self: self.weight), r"dense: has shape .* return \[4, 16, 5\]"),
        (with_layer(dense_bias=lambda self: self.bias[0]), "dense_bias: has shape"),
        (with_layer(__call__=needs_an_array), "__call__ on x .* with no identity array: fails with"),
        (with_layer(__call__=only_hidden), r"BadLayer \(kind 'hidden', depth 1\): __call__"),
        (with_layer(__call__=lambda self, x, identity=None: x), r"__call__ on x .* returns shape \[2, 4, 5\]; return"),
        (with_layer(__call__=lambda self, x, identity=None: x @ self.weight), "__call__ on x of .*: fails with"),
        (with_layer(regularisers=lambda self: {"mine": self.weight}), "regularisers: return a dict of scalars"),
        (with_layer(diversity=lambda self: jnp.zeros(())), "diversity: return a scalar and the number"),
        (with_layer(spectrum=lambda self: (self.bias, self.bias[0])), r"spectrum: return .* \[4, values\]"),
        (with_method(identities=lambda self, agents, roles: 2), "Bad.identities: 2 identities for 4 agents"),
        (with_method(identities=lambda self, agents, roles: 0), "Bad.identities: 0 is not a positive"),
        (with_method(initial_clusters=lambda self, agents: jnp.full(agents, 4)), "initial_clusters: .* below 4"),
        (with_method(linear=own_linear(identities=lambda own: 3)), "identities is 3 but should be 4"),
        (with_method(linear=own_linear(bias=lambda own: own["bias"].T)), r"Layer .*\.bias: private\(\) says"),
        (
            with_method(
                linear=own_linear(weight=lambda o: o["weight"].astype(int), bias=lambda o: o["bias"].astype(int))
            ),
            "holds no floating array",
        ),
        (with_method(linear=lambda self, *sizes, **rest: eqx.nn.Identity()), "returns a Identity; return a subclass"),
        (with_method(linear=lambda self, *sizes, **rest: 1 / 0), "Bad.linear: fails with ZeroDivisionError"),
        (
            with_method(penalties=lambda self: Penalties(fixed=(("mine", 1.0),))),
            "penalties: no layer has the term 'mine'",
        ),
    ],
)
def test_each_fault_is_one_sentence(method, words):
    with pytest.raises(UserError, match=words) as error:
        check_method(method, SPEC)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_a_layer_that_ignores_its_identity_is_told_apart_only_by_unequal_biases():
    method = with_layer(__call__=ignores_identity)
    check_method(method, SPEC, width=8)  # equal biases: it is the same function
    unequal = with_method(
        layer=method.layer,
        linear=lambda self, fan_in, fan_out, *, identities, key, kind, depth: self.layer(
            weight=uniform_weight(key, fan_out, fan_in, fan_in=fan_in),
            bias=jnp.arange(float(identities * fan_out)).reshape(identities, fan_out),
            identities=identities,
        ),
    )
    with pytest.raises(UserError, match="differs from dense"):
        check_method(unequal, SPEC, width=8)


def test_a_field_that_is_declared_as_float_must_hold_floats():
    class Declared(Layer):
        scale: "jnp.ndarray" = None

    from jaxtyping import Array, Float

    Declared.__dataclass_fields__["scale"].type = Float[Array, ""]

    def linear(self, fan_in, fan_out, *, identities, key, kind, depth):
        weight = uniform_weight(key, fan_out, fan_in, fan_in=fan_in)
        return Declared(weight, jnp.zeros((identities, fan_out)), identities=identities, scale=jnp.int32(1))

    with pytest.raises(UserError, match=r"Declared .*\.scale: is declared as Float but holds int32"):
        check_method(with_method(linear=linear), SPEC)


@pytest.mark.parametrize("name", ["prepare", "refresh", "after_update", "constrain"])
def test_a_change_must_keep_the_network(name):
    method = with_method(**{name: lambda self, network, *rest: eqx.filter(network, lambda leaf: leaf.shape[0] == M)})
    learner = QMix(batch=2, buffer=4, embed=4, hypernet=4).learner(method, SPEC, width=8)
    with pytest.raises(UserError, match=f"Bad.{name}: returns other arrays than it gets"):
        check_method(method, SPEC, learner=learner)


def test_a_method_must_be_registered_since_its_folder_only_names_it(tmp_path):
    with pytest.raises(UserError, match=r"Good: is not registered; call prism_marl\.sharing\.register\(Good\)"):
        runner.run(small("roles/2", "fups").changed(sharing=Good()), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_method_of_ones_own_may_have_a_spectrum(tmp_path, monkeypatch):
    method = with_layer(spectrum=lambda self: (self.bias, self.bias > 0))
    monkeypatch.setitem(METHODS, "good", type(method))
    sizes = {"run__steps": "8", "run__eval_every": "8"}
    folder = runner.run(small("roles/2", "fups", **sizes).changed(sharing=method), tmp_path / "run")
    assert len(list((folder / "spectra").glob("*.safetensors"))) == 2


def test_training_checks_a_method_of_the_users_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "make_trainer", lambda experiment: pytest.fail("compiled before the check"))
    experiment = small("roles/4", "fups").changed(sharing=with_layer(dense=forgets_dense))
    with pytest.raises(UserError, match="differs from dense"):
        runner.run(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()
