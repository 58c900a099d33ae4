"""Parameter counts of the paper, to the unit: counted on the networks, not computed by formula."""

import jax
import pytest

from prism_marl.networks import Inputs, mlp_actor, recurrent_agent
from prism_marl.networks.recurrent import RoleGRU
from prism_marl.sharing import METHODS
from prism_marl.sharing.footprint import footprint
from prism_marl.types import EnvSpec

# task: (agents, observation, actions), then per method the two widths with their published totals
BATTLES = {
    "terran": ((5, 82, 11), {
        "nops": ((64, 196_535), (44, 99_935)),
        "snp": ((148, 194_187), (104, 99_851)),
        "kaleidoscope": ((104, 197_715), (70, 99_761)),
        "prism": ((130, 194_997), (90, 100_553)),
    }),
    "protoss": ((5, 92, 11), {
        "nops": ((64, 199_735), (44, 102_135)),
        "snp": ((148, 195_667), (104, 100_891)),
        "kaleidoscope": ((102, 195_137), (70, 102_561)),
        "prism": ((130, 198_382), (90, 101_453)),
    }),
}  # fmt: skip
ROBOTS = {
    "ant": ((4, 111, 2), {
        "nops": ((256, 379_912), (168, 190_184)),
        "snp": ((558, 380_008), (380, 191_150)),
        "kaleidoscope": ((222, 377_624), (144, 188_786)),
        "prism": ((398, 380_536), (268, 190_996)),
    }),
    "walker": ((2, 17, 3), {
        "nops": ((256, 142_342), (178, 71_206)),
        "snp": ((364, 141_969), (254, 71_129)),
        "kaleidoscope": ((206, 142_143), (142, 70_719)),
        "prism": ((260, 143_415), (180, 70_615)),
    }),
}  # fmt: skip


def shapes(build, sharing, size, width, *, roles, last_action):
    """The network without its numbers."""
    agents, observation, actions = size
    spec = EnvSpec("task", agents, observation, 1, actions, roles, 1)
    inputs = Inputs.of(sharing, spec, last_action=last_action).size(spec)
    return jax.eval_shape(
        lambda key: build(sharing, inputs=inputs, actions=actions, width=width, agents=agents, roles=roles, key=key),
        jax.random.key(0),
    )


def cases(tasks):
    for task, (size, methods) in tasks.items():
        for name, published in methods.items():
            for width, total in published:
                yield pytest.param(name, size, width, total, id=f"{task}-{name}-{width}")


@pytest.mark.parametrize(("name", "size", "width", "total"), list(cases(BATTLES)))
def test_battle_counts(name, size, width, total):
    sharing = METHODS[name]()
    if hasattr(sharing, "masks"):
        sharing = sharing.changed(masks="role")
    network = shapes(recurrent_agent, sharing, size, width, roles=3, last_action=True)
    assert footprint(network).parameters == total


@pytest.mark.parametrize(("name", "size", "width", "total"), list(cases(ROBOTS)))
def test_robot_counts(name, size, width, total):
    network = shapes(mlp_actor, METHODS[name](), size, width, roles=size[0], last_action=False)
    assert footprint(network).parameters == total


@pytest.mark.parametrize(
    ("name", "ratios"),
    [
        ("snp", (0.0145, 0.0892, 0.2488, 0.3204)),
        ("kaleidoscope", (0.6618, 0.9402, 0.9922, 0.9990)),
        ("prism", (0.0020, 0.0166, 0.0829, 0.1483)),
    ],
)
def test_overhead_of_more_agents(name, ratios):
    for agents, ratio in zip((2, 16, 128, 1024), ratios, strict=True):
        size = (agents, 4 * agents + 4, 2)
        network = shapes(mlp_actor, METHODS[name](), size, 256, roles=agents, last_action=False)
        assert round(footprint(network).ratio, 4) == ratio


def test_gru_has_two_bias_vectors():
    network = shapes(recurrent_agent, METHODS["fups"](), (3, 6, 4), 16, roles=3, last_action=False)
    assert isinstance(network.gru, RoleGRU)
    assert footprint(network.gru).parameters == 6 * 16**2 + 6 * 16


COST = {  # numbers of one more identity in a hidden 7 x 5 layer, which has r = 5 and K = 2
    "nops": 7 * 5 + 7,
    "fups": 0,
    "fups_id": 0,
    "fups_id_svd": 0,
    "seps": 7 * 5 + 7,
    "snp": 7,
    "adaps": 7,
    "kaleidoscope": 7 * 5,
    "prism": 2,
    "hypermarl": 4,
    "lorasa": 4 * (7 + 5) + 7,
    "spectrum_delta": 2,
    "random_spectrum": 2,
    "film": 2 * 7,
    "multihead": 0,
    "experts": 4,
    "cash": 1,
    "hps": 7,
    "dico": 0,
    "gradps": 2 * 7,
    "hetdps": 7 * 5 + 7,
}


COSTED = {"cash": {"capabilities": "1,0;0,1;1,1;2,0"}}  # by default what is shared grows with the number of kinds


@pytest.mark.parametrize("name", METHODS)
def test_cost_of_one_more_identity(name):
    def layer(identities):
        build = METHODS[name](**COSTED.get(name, {})).linear
        return jax.eval_shape(
            lambda key: build(5, 7, identities=identities, key=key, kind="hidden", depth=1), jax.random.key(0)
        )

    assert footprint(layer(4)).parameters - footprint(layer(3)).parameters == COST[name]
    assert footprint(layer(3)).private == 3 * COST[name]


@pytest.mark.parametrize(("build", "layers"), [(recurrent_agent, 3), (mlp_actor, 3)])
def test_hypermarl_is_flat_in_the_number_of_agents(build, layers):
    """An agent more is one vector of four numbers in each generated layer, whatever the width."""
    sizes = {
        agents: footprint(shapes(build, METHODS["hypermarl"](), (agents, 30, 5), 32, roles=1, last_action=False))
        for agents in (2, 3, 1002)
    }
    assert sizes[3].parameters - sizes[2].parameters == layers * 4
    assert sizes[1002].parameters - sizes[2].parameters == 1000 * layers * 4
    assert sizes[2].shared == sizes[1002].shared
    assert sizes[1002].parameters < 1.13 * sizes[2].parameters  # NoPS would need 501 times as many
