"""Prism in PyTorch: the layer and the regularisers of ``prism_marl.sharing``, equal in values and gradients.

from prism_marl.torch import Prism, PrismLoss

prism = Prism(common=0.5)
layer = prism.linear(16, 32, identities=4)   # a torch.nn.Module
y = layer(x)                                 # x [batch, agent, 16]: index i of the agent axis is identity i
add_regularisers = PrismLoss(prism)
loss, terms = add_regularisers(task_loss, network)
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from math import floor, inf
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import numpy as np

from prism_marl.errors import UserError
from prism_marl.runs.saved_layers import ARRAYS, saved_layers

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    remedy = "pip install 'prism-marl[torch]', or from a clone pip install -e '.[torch]'"
    raise ModuleNotFoundError(f"prism_marl.torch needs PyTorch: {remedy}", name="torch") from None

from torch import Tensor, nn


@dataclass(frozen=True)
class Prism:
    """The settings of ``prism_marl.sharing.Prism``: same names, defaults and meanings."""

    common: float = 0.5  # share of singular values that every identity uses unmasked
    ortho: float = 0.01  # weight of the orthogonality term
    diversity: float = 5.0  # strength of the diversity term relative to the task loss
    masks: Literal["agent", "role"] = "agent"  # one mask per agent, or per unit type
    ids: bool = True  # whether agents read their index: here your network decides, and nothing reads this
    init: Literal["svd_of_torch", "svd_of_orthogonal", "random_orthonormal"] = "svd_of_torch"  # start of U, s, V
    common_part: Literal["leading", "trailing", "random"] = "leading"  # which singular values are common
    threshold_scale: float = 5.0  # thresholds start at -(scale * u + shift), u uniform in [0, 1]
    threshold_shift: float = 5.0  # shift of that start: the larger, the fewer directions are off at first
    threshold_init: Literal["own", "shared"] = "own"  # each identity samples its own, or all start from one sample
    ste: Literal["tanh", "identity", "sigmoid"] = "tanh"  # backward pass of the binary mask
    ties: Literal["still", "apart"] = "still"  # masks that agree are left alone (the paper), or pushed apart
    div_detach_s: bool = True  # the diversity term moves thresholds only, not singular values
    div_mode: Literal["adaptive", "fixed"] = "adaptive"  # scale diversity to the task loss, or use it as it is
    window: int = 100  # losses that the adaptive scale averages
    spectrum_abs: bool = True  # masks compare |s|; False = s, as in the paper, and a negative s stays off
    detach_max: bool = False  # no gradient through the largest |s|
    layer_base: float = 1.0  # layer l (from 0) has the weight layer_base**l in the diversity term
    ortho_norm: Literal["sum", "r2"] = "sum"  # orthogonality: plain sum, or each layer divided by its rank squared
    threshold_rate: float = 1.0  # learning rate of thresholds relative to the rest
    reset_interval: int = 0  # stays 0: nothing here counts environment steps
    reset_ratio: float = 0.5  # probability that ``revive`` brings back a direction that no identity uses
    frob_decay: float = 0.0  # weight of half the squared Frobenius norm of U diag(s) V^T; 0 = none

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Prism).items():
            value, known = getattr(self, name), get_args(kind)
            if known and value not in known:
                raise UserError(f"{name}: '{value}' is not one of {', '.join(known)}")
        for name, least, most in (("common", 0, 1), ("reset_ratio", 0, 1), ("window", 1, inf)):
            if not least <= getattr(self, name) <= most:
                raise UserError(f"{name}: {getattr(self, name)} is outside [{least}, {most}]")
        if self.reset_interval:
            raise UserError(
                "reset_interval: nothing here counts environment steps; leave it 0 and call revive() yourself"
            )

    @classmethod
    def of(cls, settings: Any) -> "Prism":
        """The same settings, given those of ``prism_marl.sharing`` or the part ``sharing`` of a run's config.json."""
        given = settings if isinstance(settings, dict) else vars(settings)
        known = {field.name for field in fields(cls)} - {"reset_interval"}
        return cls(**{name: value for name, value in given.items() if name in known})

    def identities(self, agents: int, roles: int) -> int:
        """How many identities the layers of a team need."""
        return roles if self.masks == "role" else agents

    def masked(self, rank: int) -> int:
        """K = floor((1 - common) * r), in exact arithmetic."""
        return floor((1 - Fraction(str(self.common))) * rank)

    def thresholds(self, identities: int, masked: int, generator: torch.Generator | None = None) -> Tensor:
        """Starting values."""
        samples = 1 if self.threshold_init == "shared" else identities
        drawn = -(self.threshold_scale * torch.rand(samples, masked, generator=generator) + self.threshold_shift)
        return (drawn / self.threshold_rate).expand(identities, masked).clone()

    def linear(
        self, fan_in: int, fan_out: int, *, identities: int, depth: int = 0, generator: torch.Generator | None = None
    ) -> "SpectralLinear":
        """A layer that starts as ``nn.Linear`` would; ``depth`` counts the layers of a network from 0. A recurrent core
        stays a plain ``nn.GRU``: Prism does not mask it."""
        bound = fan_in**-0.5
        start = torch.empty(fan_out, fan_in + 1).uniform_(-bound, bound, generator=generator)
        U, s, V = _svd(start[:, :-1])
        if self.init == "svd_of_orthogonal":
            s = torch.full_like(s, s.square().mean().sqrt().item())
        elif self.init == "random_orthonormal":
            U, V = (_svd(torch.randn(size, len(s), generator=generator))[0] for size in (fan_out, fan_in))
        order = torch.randperm(len(s), generator=generator) if self.common_part == "random" else torch.arange(len(s))
        if self.common_part == "trailing":  # the common block always comes first: put the small ones there
            order = order.flip(0)
        threshold = self.thresholds(identities, self.masked(len(s)), generator)
        parts = (U[:, order], s[order], V[:, order], start[:, -1].clone(), threshold)
        return SpectralLinear(self, parts, self.layer_base**depth)


class SpectralLinear(nn.Module):
    """y = ((x V) * s_m) U^T + b; identity m scales the last K singular values by relu(|s| / max|s| - sigmoid(t_m))."""

    def __init__(self, settings: Prism, parameters: Iterable[Tensor], layer_weight: float = 1.0):
        """``parameters`` are U [out, r], s [r], V [in, r], bias [out] and threshold [identities, K]."""
        super().__init__()
        self.settings, self.layer_weight = settings, layer_weight
        self.U, self.s, self.V, self.bias, self.threshold = map(nn.Parameter, parameters)
        self.identities, self.masked = self.threshold.shape  # m masks on the last K singular values

    @classmethod
    def of(cls, layer: Any) -> "SpectralLinear":
        """A copy of a Prism layer of ``prism_marl.sharing``, or of a run's checkpoint."""
        if any(not hasattr(layer, name) for name in (*ARRAYS, "settings")):
            raise UserError(f"layer: {type(layer).__name__} is not a layer of Prism; others have no form in PyTorch")
        arrays = (torch.tensor(np.asarray(getattr(layer, name))) for name in ARRAYS)
        return cls(Prism.of(layer.settings), arrays, layer.layer_weight)

    def forward(self, x: Tensor, identity: Tensor | None = None) -> Tensor:
        """x [..., agent, in] to [..., agent, out]. ``identity`` says who stands at each index of the agent axis, as
        [agent] or [..., agent]; without it index i is identity i."""
        self._check(x, identity)
        spectra = self.spectra() if identity is None else self.spectra()[identity]
        return ((x @ self.V) * spectra) @ self.U.T + self.bias

    def dense(self) -> Tensor:
        """One matrix [out, in] per identity: what the layer means."""
        return torch.einsum("or,mr,ir->moi", self.U, self.spectra(), self.V)

    def spectra(self) -> Tensor:
        """The singular values of every identity, common ones first."""
        common, separate = self._parts()
        return torch.cat([common.expand(self.identities, -1), separate * torch.relu(self._headroom(separate))], dim=1)

    @torch.no_grad()
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """The singular values of each identity and which of them are on, without gradients."""
        common, separate = self._parts()
        on = torch.ones_like(common, dtype=torch.bool).expand(self.identities, -1)
        return self.spectra(), torch.cat([on, self._headroom(separate) > 0], dim=1)

    def on(self) -> Tensor:
        """1 where an identity uses a direction, with the straight-through gradient on the thresholds."""
        return _Step.apply(self._headroom(self._parts(self.settings.div_detach_s)[1]), self.settings.ste)

    def diversity(self) -> tuple[Tensor, int]:
        """Sum over ordered pairs (p, q) of |s * (on_p - on_q)|, weighted, and the number of entries of one mask."""
        separate, on = self._parts(self.settings.div_detach_s)[1], self.on()
        order = self._headroom(separate) if self.settings.ties == "apart" else on
        columns = order.detach().T.contiguous()
        ranked = columns.sort(dim=1).values
        # Of each entry: in how many other rows it is larger, minus in how many it is smaller.
        slope = torch.searchsorted(ranked, columns) + torch.searchsorted(ranked, columns, right=True) - len(on)
        return self.layer_weight * (on * (2.0 * slope.T) * separate.abs()).sum(), self.masked

    def regularisers(self) -> dict[str, Tensor]:
        """Unweighted values of the other regularisers by name."""
        scale = len(self.s) ** -2 if self.settings.ortho_norm == "r2" else 1.0
        left, right = self.U.T @ self.U, self.V.T @ self.V
        one = torch.eye(len(self.s), dtype=self.s.dtype, device=self.s.device)
        terms = {"orthogonality": scale * (((left - one) ** 2).sum() + ((right - one) ** 2).sum())}
        if self.settings.frob_decay:
            terms["frobenius"] = 0.5 * (self.s @ (left * right) @ self.s)
        return terms

    @torch.no_grad()
    def revive(self, generator: torch.Generator | None = None) -> None:
        """Bring back directions that every identity has switched off, each with probability ``reset_ratio``: unit
        vectors orthogonal to all others, a middling singular value, fresh thresholds."""
        common, separate = self._parts()
        dead = (self._headroom(separate) <= 0).all(dim=0)
        chosen = dead & (torch.rand(self.masked, generator=generator) < self.settings.reset_ratio).to(dead.device)
        if not chosen.any():
            return
        columns = torch.cat([torch.zeros_like(common, dtype=torch.bool), chosen])
        for factor in (self.U, self.V):
            new = torch.randn(len(factor), int(chosen.sum()), generator=generator).to(factor)
            kept = factor[:, ~columns]
            factor[:, columns] = torch.linalg.qr(torch.cat([kept, new], dim=1)).Q[:, kept.shape[1] :]
        self.s[columns] = torch.quantile(separate.abs(), 0.5)
        fresh = self.settings.thresholds(self.identities, self.masked, generator)
        self.threshold[:, chosen] = fresh.to(self.threshold)[:, chosen]

    def _parts(self, constant: bool = False) -> tuple[Tensor, Tensor]:
        """The common and the separate singular values, before masks; ``constant`` keeps gradients from them."""
        s, common = self.s.detach() if constant else self.s, len(self.s) - self.masked
        return s[:common], s[common:]

    def _headroom(self, separate: Tensor) -> Tensor:
        """Normalised singular values minus thresholds: positive where an identity uses the direction."""
        size = separate.abs() if self.settings.spectrum_abs else separate
        peak = size.amax() if self.masked else size.sum()  # where several are largest, all get a share of the gradient
        peak = peak.detach() if self.settings.detach_max else peak
        return size / (peak + 1e-12) - torch.sigmoid(self.settings.threshold_rate * self.threshold)

    def _check(self, x: Tensor, identity: Tensor | None) -> None:
        if x.ndim < 2 or x.shape[-1] != len(self.V):
            raise UserError(f"x: has the shape {list(x.shape)}; this layer reads [..., agent, {len(self.V)}]")
        if identity is None and self.identities not in (1, x.shape[-2]):
            raise UserError(
                f"identity: {x.shape[-2]} agents at {self.identities} identities; pass who stands at each place"
            )
        if identity is None or identity.numel() == 0 or torch.compiler.is_compiling():
            return
        if identity.dtype not in (torch.int64, torch.int32):
            raise UserError(f"identity: a tensor of {identity.dtype} does not number identities; pass int64")
        if identity.device.type == "cpu" and not 0 <= identity.min() <= identity.max() < self.identities:
            raise UserError(f"identity: {identity.min()} to {identity.max()} is not within 0 to {self.identities - 1}")


class PrismLoss(nn.Module):
    """Adds Prism's regularisers to a task loss. Its buffer is the memory behind the adaptive coefficient."""

    def __init__(self, settings: Prism):
        super().__init__()
        self.settings = settings
        self.register_buffer("recent", torch.zeros(3, settings.window))  # task losses, diversity terms, 1 where filled

    def forward(self, task: Tensor, network: nn.Module, size: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and the unweighted terms by name. The adaptive weight goes by ``size``, or by the task loss."""
        terms = network_regularisers(network)
        weights: dict[str, Any] = {"orthogonality": self.settings.ortho, "frobenius": self.settings.frob_decay}
        told = dict(terms)
        if "diversity" in terms:
            weights["diversity"] = self._coefficient(task if size is None else size, terms["diversity"])
            told["diversity_coefficient"] = weights["diversity"]
        return task + sum(weights[name] * term for name, term in terms.items()), told

    @torch.no_grad()
    def _coefficient(self, task: Tensor, diversity: Tensor) -> Tensor:
        """|beta * mean(task) / mean(diversity)|, or beta while the diversity term is exactly zero."""
        latest = torch.stack([task, diversity, torch.ones_like(task)]).to(self.recent)
        self.recent = torch.cat([self.recent[:, 1:], latest[:, None]], dim=1)
        total = self.recent.sum(dim=1)
        mean, spread, _ = total / total[2]
        beta = torch.full_like(mean, self.settings.diversity)
        return torch.where((spread == 0) | (self.settings.div_mode == "fixed"), beta, (beta * mean / spread).abs())


def network_regularisers(network: nn.Module) -> dict[str, Tensor]:
    """The regularisers of all layers: ``diversity`` is the mean over ordered pairs and entries, negated so that
    minimising it separates the masks; every other one is the sum over layers."""
    layers = [layer for layer in network.modules() if isinstance(layer, SpectralLinear)]
    terms: dict[str, Tensor] = {}
    for layer in layers:
        for name, value in layer.regularisers().items():
            terms[name] = terms[name] + value if name in terms else value
    own = [layer for layer in layers if layer.masked]
    pairs = max((layer.identities * (layer.identities - 1) for layer in own), default=0)
    if pairs:
        value = torch.stack([layer.diversity()[0] for layer in own]).sum()
        terms["diversity"] = -value / (pairs * sum(layer.masked for layer in own))
    return terms


def load_layers(run: str | Path, seed: int | None = None) -> dict[str, SpectralLinear]:
    """The layers ``fc1``, ``fc2``, ... of the agents of a run with Prism, at its newest checkpoint."""
    return {name: SpectralLinear.of(layer) for name, layer in saved_layers(run, seed).items()}


class _Step(torch.autograd.Function):
    """1 where x > 0, else 0; the gradient is passed on as ``tanh`` of itself, as it is, or times a sigmoid's slope."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, backward: str) -> Tensor:
        return (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
        x, ctx.passed = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        (gradient,) = grad_outputs
        slope = torch.sigmoid(ctx.saved_tensors[0])
        passed = {"tanh": torch.tanh(gradient), "identity": gradient, "sigmoid": gradient * slope * (1 - slope)}
        return passed[ctx.passed], None


def _svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    return left.to(matrix), values.to(matrix), right.T.to(matrix)
