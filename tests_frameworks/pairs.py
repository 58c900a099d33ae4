"""The same layer in JAX and in PyTorch."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch

from prism_marl.sharing import Prism, role_layers

IDENTITIES = 3
PARAMETERS = ("U", "s", "V", "bias", "threshold")


def layer_of(settings: Prism, fan_in: int = 6, fan_out: int = 8, identities: int = IDENTITIES, depth: int = 1) -> Any:
    """A layer in double precision, away from its start: masks differ, some singular values are negative."""
    layer = settings.linear(fan_in, fan_out, identities=identities, key=jax.random.key(3), kind="hidden", depth=depth)
    noise = np.random.default_rng(1)
    U, V, bias = (np.asarray(part) + noise.normal(0, 0.1, part.shape) for part in (layer.U, layer.V, layer.bias))
    s = np.asarray(layer.s, np.float64)
    if settings.init != "svd_of_orthogonal":  # there all are equal, and all are the largest
        s = s * np.where(np.arange(s.size) % 4 == 3, -1, 1)
    size = s[s.size - layer.masked :]
    size = np.abs(size) if settings.spectrum_abs else size
    factor = np.where(np.indices(layer.threshold.shape).sum(axis=0) % 2, 0.6, 1.3)  # below 1 a direction is on
    limit = np.clip(factor * noise.uniform(0.9, 1.1, factor.shape) * size / max(size, default=1.0), 0.02, 0.98)
    threshold = np.log(limit / (1 - limit)) / settings.threshold_rate
    if settings.threshold_init == "shared":
        threshold[:] = threshold[0]
        threshold[1:2] += np.where(threshold[1:2] > 0, -3, 3)  # what the task has moved
    return eqx.tree_at(
        lambda layer: [getattr(layer, name) for name in PARAMETERS],
        layer,
        [jnp.asarray(part, jnp.float64) for part in (U, s, V, bias, threshold)],
    )


def gradients(layer: torch.nn.Module, value: torch.Tensor) -> dict[str, np.ndarray]:
    """Of a value with respect to every parameter; zeros where it does not depend on one."""
    parameters = dict(layer.named_parameters())
    if not value.requires_grad:
        return {name: np.zeros(part.shape) for name, part in parameters.items()}
    found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True, materialize_grads=True)
    return {name: part.numpy() for name, part in zip(parameters, found, strict=True)}


def arrays(network: Any) -> dict[str, np.ndarray]:
    """Every parameter of the layers of a network in JAX, under the names of a state dict."""
    layers = role_layers(network)
    return {f"{name}.{part}": np.asarray(getattr(layer, part)) for name, layer in layers.items() for part in PARAMETERS}
