"""What all learners of action values can be set to, and what of it cannot work."""

from dataclasses import dataclass
from typing import ClassVar

from prism_marl.errors import UserError
from prism_marl.learners.base import Settings
from prism_marl.types import EnvSpec


@dataclass(frozen=True)
class ValueSettings(Settings):
    """Settings of learning action values from whole episodes; the defaults are the paper's LBF table where no preset
    says otherwise."""

    kinds: ClassVar[tuple[str, ...]] = ("discrete",)
    positive: ClassVar[tuple[str, ...]] = (
        *("lr", "clip", "batch", "buffer", "episodes_per_update", "target_interval", "epsilon_anneal"),
    )

    algorithm: str
    lr: float = 5e-4  # learning rate of Adam
    clip: float = 10.0  # gradients are clipped to this global norm
    gamma: float = 0.99  # discount factor
    td_lambda: float = 0.6  # TD(lambda): 0 = one-step targets, 1 = Monte Carlo returns
    batch: int = 32  # episodes in the batch of an update
    buffer: int = 5_000  # episodes in the replay buffer
    episodes_per_update: int = 1  # collected episodes for each gradient step
    target_interval: int = 200  # gradient steps between copies of the network to the target network
    target_rate: float = 0.0  # above 0: soft target updates with this rate after every gradient step, no copies
    epsilon_start: float = 1.0  # epsilon, the share of random actions, at step 0
    epsilon_finish: float = 0.05  # epsilon after its decay
    epsilon_anneal: int = 50_000  # environment steps in which epsilon decays linearly
    last_action: bool = False  # agents also read their last action
    scale_inputs: bool = False  # divide observations and state by their largest possible size
    time_limit_ends: bool = True  # the time limit counts as a termination: no bootstrapping
    half_loss: bool = True  # the loss is half the squared TD error, not the whole
    standardise_rewards: bool = False  # by running mean and deviation of the rewards, as EPyMARL does

    def validate(self, spec: EnvSpec, envs: int) -> None:
        """Everything that would otherwise fail inside the compiler."""
        if spec.kind not in self.kinds:
            raise UserError(
                f"learner.algorithm: {self.label} needs discrete actions, but '{spec.name}' has continuous ones; "
                "use matd3"
            )
        defaults = type(self)
        for name in self.positive:
            if getattr(self, name) <= 0:
                raise UserError(
                    f"learner.{name}: {getattr(self, name)} is not positive; the default is {getattr(defaults, name)}"
                )
        for name in ("gamma", "td_lambda", "target_rate", "epsilon_start", "epsilon_finish"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(
                    f"learner.{name}: {getattr(self, name)} is outside [0, 1]; the default is {getattr(defaults, name)}"
                )
        self._validate_episodes(envs)

    def warning(self, steps: int) -> str:
        if self.epsilon_anneal <= steps or self.epsilon_start <= self.epsilon_finish:
            return ""
        left = self.epsilon_start - (self.epsilon_start - self.epsilon_finish) * steps / self.epsilon_anneal
        return (
            f"learner.epsilon_anneal: exploration takes {self.epsilon_anneal:,} steps and the run has {steps:,}, so "
            f"{left:.0%} of the actions are still random at its end; lower --learner.epsilon_anneal or raise --steps"
        )

    def _validate_episodes(self, envs: int) -> None:
        if self.batch > self.buffer:
            raise UserError(
                f"learner.batch: {self.batch} episodes do not fit a buffer of {self.buffer}; lower learner.batch"
            )
        if envs > self.buffer:
            raise UserError(f"run.envs: {envs} episodes do not fit a buffer of {self.buffer}; lower run.envs")
        if envs % self.episodes_per_update and self.episodes_per_update % envs:
            near = max(1, round(envs / self.episodes_per_update)) * self.episodes_per_update
            raise UserError(
                f"run.envs: {envs} is no multiple or divisor of learner.episodes_per_update "
                f"({self.episodes_per_update}); the nearest valid value is {near}"
            )
