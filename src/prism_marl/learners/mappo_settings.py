"""What MAPPO and IPPO can be set to, and what of it cannot work."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from prism_marl.errors import UserError
from prism_marl.learners.base import Settings
from prism_marl.types import EnvSpec


@dataclass(frozen=True)
class PPOSettings(Settings):
    """Settings of learning a policy from its own rollouts; presets have values for each family of tasks."""

    kinds: ClassVar[tuple[str, ...]] = ("discrete", "continuous")
    central: ClassVar[bool]  # critics see the state, or what an agent observes

    algorithm: str
    length: int = 128  # steps of every environment in one rollout
    epochs: int = 4  # passes over a rollout
    minibatches: int = 1  # minibatches of each epoch, one gradient step each
    recurrent: bool = True  # actor and critic have a GRU; if not, both are feed-forward
    chunk: int = 0  # length of the training sequences of recurrent networks; 0 = the whole rollout
    behind_gru: int = 2  # hidden layers between the GRU and the head: 1 or 2
    actor_lr: float = 5e-4  # learning rate of the actor's Adam
    critic_lr: float = 5e-4  # learning rate of the critic's Adam
    lr_decay: bool = False  # both learning rates fall linearly to zero over run.steps
    adam_eps: float = 1e-8  # Adam's epsilon; the usual 1e-5 would nearly stop thresholds, whose gradients are tiny
    gamma: float = 0.99  # discount factor
    gae_lambda: float = 0.95  # GAE: 0 = one-step advantages, 1 = returns minus values
    ratio_clip: float = 0.2  # PPO's clip of the ratio of new to old probability
    value_clip: float = 0.2  # PPO's clip of the change of a value; 0 = none
    entropy: float = 0.01  # weight of the entropy bonus
    value_coef: float = 1.0  # weight of the critic's loss
    huber: float = 10.0  # Huber loss: value errors above this count linearly; 0 = squared errors
    value_norm: bool = True  # ValueNorm: critics predict standardised returns
    advantages: Literal["batch", "minibatch", "plain"] = "batch"  # standardise over the rollout, a minibatch, or not
    grad_clip: float = 10.0  # gradients of actor and of critic are clipped to this global norm; 0 = no limit
    critic_sharing: Literal["shared", "per_agent", "same"] = "shared"  # one for all, one per agent, or as actors share
    critic_values: Literal["auto", "team", "agent"] = "auto"  # a value for the team, or one for each agent
    critic_width: int = 0  # hidden units of the critic; 0 = as many as the actor has
    head: Literal["auto", "categorical", "gaussian"] = "auto"  # distribution; auto: by the actions
    own_deviation: bool = False  # continuous actions: every agent learns its own standard deviation
    standardise_inputs: bool = False  # standardise each input vector by its own mean and deviation, id included
    scale_inputs: bool = False  # divide observations and state by their largest possible size
    time_limit_ends: bool = False  # the time limit counts as a termination: no bootstrapping

    def values(self, spec: EnvSpec) -> int:
        """How many values a critic gives at a time: one, or one for each agent."""
        each = not self.central or self.critic_sharing != "shared" or spec.reward == "agent"
        return spec.agents if self.critic_values == "agent" or (self.critic_values == "auto" and each) else 1

    @property
    def sequence(self) -> int:
        """Steps of one training sample: of a sequence, or a single one where nothing is remembered."""
        return (self.chunk or self.length) if self.recurrent else 1

    def validate(self, spec: EnvSpec, envs: int) -> None:
        """Everything that would otherwise fail inside the compiler."""
        head = "categorical" if spec.kind == "discrete" else "gaussian"
        if self.head not in ("auto", head):
            raise UserError(
                f"learner.head: '{self.head}' is not for '{spec.name}', whose actions are {spec.kind}; use '{head}'"
            )
        self._check_numbers()
        self._check_critic(spec)
        self._check_sequences(envs)

    def _check_numbers(self) -> None:
        defaults = type(self)
        for name in ("length", "epochs", "minibatches", "actor_lr", "critic_lr", "adam_eps", "ratio_clip"):
            if getattr(self, name) <= 0:
                raise UserError(
                    f"learner.{name}: {getattr(self, name)} is not positive; the default is {getattr(defaults, name)}"
                )
        for name in ("chunk", "value_clip", "entropy", "value_coef", "huber", "grad_clip", "critic_width"):
            if getattr(self, name) < 0:
                raise UserError(
                    f"learner.{name}: {getattr(self, name)} is negative; the default is {getattr(defaults, name)}"
                )
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(
                    f"learner.{name}: {getattr(self, name)} is outside [0, 1]; the default is {getattr(defaults, name)}"
                )
        if self.behind_gru not in (1, 2):
            raise UserError(f"learner.behind_gru: {self.behind_gru} is not 1 or 2; the default is 2")
        if self.standardise_inputs and self.scale_inputs:
            raise UserError("learner.scale_inputs: inputs that are standardised have no size; set one of the two")

    def _check_critic(self, spec: EnvSpec) -> None:
        if self.critic_values != "team":
            return
        reason = ""
        if not self.central:
            reason = "a critic that sees what one agent observes cannot value the team"
        elif spec.reward == "agent":
            reason = f"every agent of '{spec.name}' has a reward of its own"
        elif self.critic_sharing != "shared":
            reason = f"with critic_sharing '{self.critic_sharing}' every agent has a critic of its own"
        if reason:
            raise UserError(f"learner.critic_values: 'team' is not possible, because {reason}; use 'agent'")

    def _check_sequences(self, envs: int) -> None:
        if self.chunk and not self.recurrent:
            raise UserError(
                f"learner.chunk: sequences of {self.chunk} steps are for recurrent networks; set chunk 0 or recurrent"
            )
        if self.chunk > self.length or (self.chunk and self.length % self.chunk):
            near = max(size for size in range(1, min(self.chunk, self.length) + 1) if self.length % size == 0)
            why = "is longer than" if self.chunk > self.length else "does not divide"
            raise UserError(
                f"learner.chunk: {self.chunk} {why} a rollout of {self.length} steps; the nearest valid value is {near}"
            )
        samples = self.length // self.sequence * envs
        if samples % self.minibatches:
            near = max(size for size in range(1, min(self.minibatches, samples) + 1) if samples % size == 0)
            what = f"{samples} sequences of {self.sequence} steps" if self.recurrent else f"{samples} steps"
            raise UserError(
                f"learner.minibatches: {self.minibatches} parts do not divide a rollout of {what} (run.envs {envs}); "
                f"the nearest valid value is {near}"
            )
