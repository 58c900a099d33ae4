"""Every family of tasks in this package. A new environment is one file and one entry here."""

from prism_marl.envs.dispersion import dispersion_diversity, make_dispersion
from prism_marl.envs.diversity import groups_diversity, roles_diversity
from prism_marl.envs.family import Family
from prism_marl.envs.groups import make_groups
from prism_marl.envs.jaxmarl import make_jaxmarl
from prism_marl.envs.lbf_places import make_foraging
from prism_marl.envs.mamujoco import ROBOTS, make_mamujoco, mamujoco_spec
from prism_marl.envs.matrix import make_matrix, make_pass, matrix_diversity, pass_diversity
from prism_marl.envs.meaning import (
    battle_meaning,
    dispersion_meaning,
    groups_meaning,
    lbf_meaning,
    matrix_meaning,
    navigation_meaning,
    orchard_meaning,
    pass_meaning,
    predator_prey_meaning,
    reach_meaning,
    robot_meaning,
    roles_meaning,
    simple_spread_meaning,
    warehouse_meaning,
)
from prism_marl.envs.navigation import make_navigation, navigation_diversity
from prism_marl.envs.orchard import make_orchard
from prism_marl.envs.predator_prey import make_predator_prey, predator_prey_diversity
from prism_marl.envs.python.lbforaging import make_lbforaging
from prism_marl.envs.python.mpe2 import make_mpe2
from prism_marl.envs.python.pettingzoo import make_pettingzoo
from prism_marl.envs.python.smacv2 import make_smacv2, smacv2_spec
from prism_marl.envs.reach import make_reach, reach_spec
from prism_marl.envs.reach_jax import make_reach_jax
from prism_marl.envs.roles import make_roles
from prism_marl.envs.simple_spread import make_simple_spread, simple_spread_diversity
from prism_marl.envs.skirmish import RACES, make_battle
from prism_marl.envs.warehouse import make_warehouse, warehouse_diversity

FAMILIES: dict[str, Family] = {
    "roles": Family(
        "roles/<agents>",
        ("roles/4",),
        "one step, identical observations: agent i must choose action i",
        make_roles,
        meaning=roles_meaning,
        diversity=roles_diversity,
    ),
    "groups": Family(
        "groups/<agents>-<groups>",
        ("groups/6-3",),
        "one step, identical observations: the action depends on the agent's group, which it does not observe",
        make_groups,
        meaning=groups_meaning,
        diversity=groups_diversity,
    ),
    "matrix": Family(
        "matrix/<climbing|penalty|xor>-<agents>",
        ("matrix/climbing-2", "matrix/penalty-2", "matrix/xor-4"),
        "one step, identical observations: pairs of agents play a matrix game with a known optimum",
        make_matrix,
        meaning=matrix_meaning,
        diversity=matrix_diversity,
    ),
    "pass": Family(
        "pass/<agents>",
        ("pass/4",),
        "one step, identical observations: an agent earns a reward if no other agent chose its action",
        make_pass,
        meaning=pass_meaning,
        diversity=pass_diversity,
    ),
    "orchard": Family(
        "orchard/<rows>x<cols>-<pickers>p-<fruits>f[-any]",
        ("orchard/6x6-3p-2f",),
        "each agent must pick fruit of its own kind; no observation says which kind that is",
        make_orchard,
        meaning=orchard_meaning,
    ),
    "dispersion": Family(
        "dispersion/<agents>",
        ("dispersion/4",),
        "all agents start on one cell and must spread over as many targets as agents",
        make_dispersion,
        meaning=dispersion_meaning,
        diversity=dispersion_diversity,
    ),
    "navigation": Family(
        "navigation/<agents>-<same|half|different>",
        ("navigation/4-same", "navigation/4-half", "navigation/4-different"),
        "go to a goal, shared by all, by half of the team, or private; no observation says whose goal is whose",
        make_navigation,
        meaning=navigation_meaning,
        diversity=navigation_diversity,
    ),
    "simple_spread": Family(
        "simple_spread/<agents>",
        ("simple_spread/8", "simple_spread/64"),
        "MPE's task on a grid: cover as many landmarks as agents (up to 64); all positions are observed",
        make_simple_spread,
        meaning=simple_spread_meaning,
        diversity=simple_spread_diversity,
    ),
    "predator_prey": Family(
        "predator_prey/<predators>-<kinds>",
        ("predator_prey/4-2",),
        "catch fleeing prey of the agent's own kind; no observation says which kind that is",
        make_predator_prey,
        meaning=predator_prey_meaning,
        diversity=predator_prey_diversity,
    ),
    "warehouse": Family(
        "warehouse/<tiny|small|medium|large>-<agents>ag[-easy|-hard][-own][-t<steps>], or "
        "<rows>x<columns>-<height>h-<agents>ag-<requests>req for the size",
        ("warehouse/tiny-2ag", "warehouse/1x3-2h-2ag-2req-t100"),
        "the multi-robot warehouse by the rules of rware 2.0.0 (v2), in JAX",
        make_warehouse,
        meaning=warehouse_meaning,
        diversity=warehouse_diversity,
    ),
    "reach": Family(
        "reach/<agents>",
        ("reach/3",),
        "ten steps, identical observations, continuous actions: each agent must choose its own point",
        shape=reach_spec,
        rows=make_reach,
        meaning=reach_meaning,
    ),
    "reach_jax": Family(
        "reach_jax/<agents>",
        ("reach_jax/3",),
        "reach in JAX, compiled with the training program",
        make_reach_jax,
        meaning=reach_meaning,
    ),
    "lbf": Family(
        "lbf/<rows>x<cols>-<players>p-<foods>f[-coop][-s<sight>][-own][-v2][-t<steps>][-places<agents>]",
        ("lbf/10x10-3p-3f", "lbf/8x8-2p-2f-coop", "lbf/10x10-3p-3f-s2"),
        "Level-Based Foraging by the rules of lbforaging 2.0.0 (v3), in JAX",
        make_foraging,
        meaning=lbf_meaning,
    ),
    "lbforaging": Family(
        "lbforaging/<size>x<size>-<players>p-<foods>f[-coop][-s<sight>][-own]",
        ("lbforaging/10x10-3p-3f",),
        "the original package lbforaging, in Python: slow, as a reference for lbf",
        python=make_lbforaging,
        workers=True,
        meaning=lbf_meaning,
    ),
    "pettingzoo": Family(
        "pettingzoo/<module>[?horizon=<steps>][&reward=sum][&<name>=<value>]",
        (),  # any module with parallel_env will do, so none is special
        "any PettingZoo parallel environment, also your own, with discrete or continuous actions",
        python=make_pettingzoo,
        workers=True,
    ),
    "mpe2": Family(
        "mpe2/<game>[?<name>=<value>[&<name>=<value>...]]",
        ("mpe2/simple_spread_v3",),
        "the particle environments of the package mpe2, with rendering; settings as in pettingzoo",
        python=make_mpe2,
        workers=True,
    ),
    "skirmish": Family(
        "skirmish/<terran|protoss|zerg>_<agents>_vs_<enemies>[-published][-places<agents>]",
        tuple(f"skirmish/{race}_5_vs_5" for race in RACES),
        "SMACv2's battles without StarCraft: its units, observations and rewards, our dynamics, in JAX",
        make_battle,
        meaning=battle_meaning,
    ),
    "smacv2": Family(
        "smacv2/<terran|protoss|zerg>_<agents>_vs_<enemies>",
        tuple(f"smacv2/{race}_5_vs_5" for race in RACES),
        "the original package smacv2; needs StarCraft II (footprint works without)",
        python=make_smacv2,
        shape=smacv2_spec,
        meaning=battle_meaning,
    ),
    "jaxmarl": Family(
        "jaxmarl/<id or smax-scenario>[?<name>=<value>]",
        (),  # building one imports JaxMARL, which is an extra
        "any JaxMARL environment with discrete actions, such as jaxmarl/smax-smacv2_5_units",
        make_jaxmarl,
    ),
    "mamujoco": Family(
        "mamujoco/<robot>-<agents>x<joints>[-damaged<agent>]",
        (*(f"mamujoco/{variant}" for variant in ROBOTS), "mamujoco/swimmer-10x2"),
        "Multi-Agent MuJoCo: the joints of one robot are divided among agents; swimmers of up to 1024 agents",
        shape=mamujoco_spec,
        rows=make_mamujoco,
        meaning=robot_meaning,
    ),
}
