"""The dynamics of skirmish in numbers worked out by hand: damage, healing, splash, recovery, the script."""

from typing import Any

import numpy as np
import pytest
from battlefield import ACT, EAST, NEVER, NORTH, STOP, WEST, alive, field, play

from prism_marl.envs.skirmish.units import RACES

CALM = {"cooldown": NEVER}  # does not shoot

ATTACKS = {  # (attacker, target): health lost to one attack where no shields are left
    ("marine", "marine"): 6,
    ("marine", "marauder"): 6 - 1,
    ("marine", "medivac"): 6 - 1,
    ("marauder", "marine"): 10,
    ("marauder", "marauder"): 10 + 10 - 1,
    ("marauder", "medivac"): 0,  # cannot shoot into the air
    ("stalker", "stalker"): 13 + 5 - 1,
    ("stalker", "zealot"): 13 - 1,
    ("stalker", "colossus"): 13 + 5 - 1,
    ("zealot", "stalker"): 2 * (8 - 1),
    ("zealot", "zealot"): 2 * (8 - 1),
    ("zealot", "colossus"): 2 * (8 - 1),
    ("colossus", "stalker"): 2 * (10 - 1),
    ("colossus", "zealot"): 2 * (10 + 5 - 1),
    ("colossus", "colossus"): 2 * (10 - 1),
    ("zergling", "zergling"): 5,
    ("zergling", "hydralisk"): 5,
    ("zergling", "baneling"): 5,
    ("hydralisk", "zergling"): 12,
    ("hydralisk", "hydralisk"): 12,
    ("hydralisk", "baneling"): 12,
    ("baneling", "zergling"): 20 + 15,
    ("baneling", "hydralisk"): 20 + 15,
    ("baneling", "baneling"): 20,
}
RACE_OF = {unit.name: race.name for race in RACES.values() for unit in race.units}


@pytest.mark.parametrize(("attacker", "target"), ATTACKS)
def test_damage_of_one_attack_on_bare_health(attacker: str, target: str):
    loss = ATTACKS[attacker, target]
    units = {unit.name: unit for unit in RACES[RACE_OF[attacker]].units}
    gap = units[attacker].radius + units[target].radius + 0.05
    prey = {"cooldown": NEVER, "shield": 0, "health": units[target].health}
    env, state = field(RACE_OF[attacker], [(attacker, 10, 16)], [(target, 10 + gap, 16, prey)])
    after, _ = play(env, state, [ACT])
    lost = float(state.health[1] - after.health[1])
    assert lost == pytest.approx(min(loss, units[target].health), abs=0.15)  # eight loops of regeneration
    if attacker == "baneling":
        assert not alive(after)[0]

    env, state = field(RACE_OF[attacker], [(target, 10, 16, prey)], [(attacker, 10 + gap, 16)])
    after, step = play(env, state, [STOP])  # the same in the hands of the script
    assert float(state.health[0] - after.health[0]) == pytest.approx(min(loss, units[target].health), abs=0.15)
    assert float(step.reward) >= 0


@pytest.mark.parametrize(
    ("attackers", "shield", "left", "lost"),
    [
        (["zealot"], 16.0, 0.0, 0.0),  # 8 + 8
        (["zealot"], 10.0, 0.0, 8 - 2 - 1),  # the second hit breaks through and meets the armor
        (["zealot"], 15.5, 0.0, 0.5),  # armor leaves half a point
        (["zealot"], 4.0, 0.0, (8 - 4 - 1) + (8 - 1)),
        (["stalker"], 50.0, 50.0 - 13, 0.0),  # shields know no armor
        (["stalker", "stalker"], 20.0, 0.0, 13 - 7 - 1),
        (["stalker", "zealot", "stalker"], 30.0, 0.0, 13 - (30 - 13 - 8 - 8) - 1),
    ],
)
def test_shields_take_whole_hits_and_armor_counts_for_each_that_breaks_through(attackers, shield, left, lost):
    agents: Any = [(name, *((11, 16) if name == "zealot" else (8 + k, 18))) for k, name in enumerate(attackers)]
    env, state = field("protoss", agents, [("zealot", 12.05, 16, {"shield": shield} | CALM)])
    after, _ = play(env, state, [ACT] * len(agents))
    assert float(after.shield[-1]) == pytest.approx(left, abs=1e-4)
    assert float(state.health[-1] - after.health[-1]) == pytest.approx(lost, abs=1e-4)


@pytest.mark.parametrize("name", ["marine", "marauder", "stalker", "zealot", "colossus", "zergling", "hydralisk"])
def test_weapons_fire_at_their_pace(name: str):
    race = RACE_OF[name]
    unit = next(unit for unit in RACES[race].units if unit.name == name)
    env, state = field(race, [(name, 10, 16)], [(name, 10 + 2 * unit.radius + 0.05, 16, CALM)])
    shots = 0.0
    for number in range(60):
        state = state._replace(health=state.health.at[1].set(unit.health), shield=state.shield.at[1].set(0.0))
        after, _ = play(env, state, [ACT], seed=number)
        shots += round(float(state.health[1] - after.health[1]) / ATTACKS[name, name])
        state = after
    assert shots == pytest.approx(60 * 8 / (unit.cooldown * 16 + 0.5), abs=1.5)


def test_units_walk_at_their_speed_and_stop_at_the_border():
    env, state = field("protoss", [("stalker", 16, 16), ("zealot", 31.3, 20)], [("zealot", 2, 2, CALM)])
    after, _ = play(env, state, [NORTH, EAST])
    assert after.y[0] == pytest.approx(16 + 2.953 / 2, abs=1e-3) and after.x[0] == 16
    assert after.x[1] == pytest.approx(31.5)
    after, _ = play(env, after, [WEST, STOP])
    assert after.x[0] == pytest.approx(16 - 2.953 / 2, abs=1e-3)
    assert after.x[1] == pytest.approx(31.5)


def test_a_target_that_cannot_be_hit_is_no_order_and_out_of_reach_ones_are_chased():
    env, state = field(
        "terran", [("marauder", 10, 16), ("marauder", 10, 10)], [("medivac", 14, 16), ("marine", 18, 10)]
    )
    after, _ = play(env, state, [ACT, ACT + 1])
    assert float(after.x[0]) == 10 and float(after.health[2]) == 150
    # four loops of walking towards each other close the gap of 7.06 to less than the range; then it shoots
    assert float(after.x[1]) == pytest.approx(10 + 4 * 2.25 / 16) and float(after.health[3]) == 45 - 10


# healing


def test_a_medivac_heals_and_pays_with_energy():
    hurt = ("marine", 12, 16, {"health": 10.0})
    env, state = field("terran", [hurt, ("medivac", 14, 16)], [("marine", 2, 2, CALM)])
    after, _ = play(env, state, [STOP, ACT])
    assert float(after.health[0]) == pytest.approx(10 + 9 / 2)
    assert float(after.energy[1]) == pytest.approx(50 - 9 / 2 / 3 + 0.5625 / 2)
    nearly = state._replace(health=state.health.at[0].set(44.0))
    after, _ = play(env, nearly, [STOP, ACT])
    assert float(after.health[0]) == 45 and float(after.energy[1]) == pytest.approx(50 - 1 / 3 + 0.5625 / 2)
    empty = state._replace(energy=state.energy.at[1].set(0.0))
    after, _ = play(env, empty, [STOP, ACT])
    assert float(after.health[0]) == pytest.approx(10 + 3 * 0.5625 * 7 / 16)  # what energy comes in is spent
    assert float(after.energy[1]) < 0.05


def test_healing_does_not_add_up_and_needs_a_patient_in_reach():
    patient = ("marine", 12, 16, {"health": 10.0})
    env, state = field("terran", [patient, ("medivac", 14, 16), ("medivac", 10, 16)], [("marine", 2, 30, CALM)] * 3)
    after, _ = play(env, state, [STOP, ACT, ACT])
    assert float(after.health[0]) == pytest.approx(10 + 9 / 2)
    assert float(after.energy[2]) == pytest.approx(50 + 0.5625 / 2)  # had nothing to do
    after, _ = play(env, state, [STOP, ACT + 2, STOP])  # a machine is no patient
    assert float(after.health[0]) == 10 and float(after.x[1]) == 14
    far = state._replace(x=state.x.at[1].set(19.0))
    after, _ = play(env, far, [STOP, ACT, STOP])
    assert float(after.x[1]) == pytest.approx(19 - 2.75 / 2, abs=0.01)  # flies up to its patient first
    assert float(after.health[0]) > 10 or float(after.x[1]) - 12 - 0.75 - 0.375 > 4


def test_the_scripts_medivac_goes_to_its_closest_hurt_mate():
    enemies = [("marine", 26, 16, {"health": 20.0} | CALM), ("medivac", 28, 16)]
    env, state = field("terran", [("marine", 3, 16), ("marine", 3, 18)], enemies)
    after, _ = play(env, state, [STOP, STOP])
    assert float(after.health[2]) == pytest.approx(20 + 9 / 2) and int(after.target[3]) == 2


# splash


@pytest.mark.parametrize("turn", [0.0, 0.7, 2.5])
@pytest.mark.parametrize(
    ("along", "across", "hit"),
    [
        (0.0, 1.85, True),  # the line reaches 1.4 to each side, bodies have radius 0.5
        (0.0, 1.95, False),
        (0.0, -1.85, True),
        (0.6, 0.0, True),  # and is 0.3 wide
        (0.7, 0.0, False),
        (-0.6, 1.5, True),
        (-0.7, 1.5, False),
    ],
)
def test_a_colossus_burns_a_line_across_its_aim(turn: float, along: float, across: float, hit: bool):
    cos, sin = np.cos(turn), np.sin(turn)

    def place(forward: float, side: float) -> tuple[float, float]:
        return 16 + forward * cos - side * sin, 16 + forward * sin + side * cos

    bare = {"shield": 0} | CALM
    enemies: Any = [("zealot", *place(6, 0), bare), ("zealot", *place(6 + along, across), bare)]
    env, state = field("protoss", [("colossus", 16, 16), ("zealot", *place(6, -0.2))], enemies)
    after, _ = play(env, state, [ACT, STOP])
    assert (state.health - after.health)[2:].tolist() == [28, 28 if hit else 0]
    assert float(after.shield[1]) == 50  # its own side is spared


@pytest.mark.parametrize("killed", [False, True])
def test_a_baneling_bursts_however_it_dies(killed: bool):
    enemies: Any = [("zergling", 10.9, 16, CALM), ("hydralisk", 10, 18.6, CALM), ("hydralisk", 10, 19.6, CALM)]
    bomb: Any = ("baneling", 10, 16)
    if killed:
        enemies[0], bomb = ("zergling", 10.9, 16), ("baneling", 10, 16, {"health": 4.0} | CALM)
    env, state = field("zerg", [bomb, ("zergling", 10, 15), ("zergling", 20, 20)], enemies)
    after, _ = play(env, state, [ACT if not killed else STOP, STOP, STOP])
    lost = np.asarray(state.health - after.health)
    assert not alive(after)[0] and lost[1] < 1  # its own side is spared
    np.testing.assert_allclose(lost[3:], [35, 35, 0], atol=0.2)


def test_a_burst_can_set_off_the_next():
    enemies: Any = [("baneling", 12, 16, {"health": 10.0} | CALM), ("zergling", 20, 20, CALM)]
    env, state = field("zerg", [("baneling", 10.9, 16), ("zergling", 14.0, 16)], enemies)
    after, _ = play(env, state, [ACT, STOP])
    assert alive(after).tolist() == [False, False, False, True]  # the second baneling took the zergling with it


# recovery


def test_shields_return_after_ten_seconds_of_calm():
    env, state = field("protoss", [("zealot", 2, 2, {"shield": 5})], [("zealot", 30, 30, CALM)])
    after, _ = play(env, state, *[[STOP]] * 20)
    assert float(after.shield[0]) == 5
    later, _ = play(env, after, *[[STOP]] * 4)
    assert float(later.shield[0]) == pytest.approx(5 + 2 * 2)
    full, _ = play(env, after._replace(shield=after.shield.at[0].set(49.9)), [STOP])
    assert float(full.shield[0]) == 50


def test_zerg_regenerate_and_others_do_not():
    env, state = field("zerg", [("hydralisk", 2, 2, {"health": 40})], [("zergling", 30, 30, CALM)])
    after, _ = play(env, state, *[[STOP]] * 10)
    assert float(after.health[0]) == pytest.approx(40 + 5 * 0.273, abs=1e-3)
    env, state = field("terran", [("marine", 2, 2, {"health": 20})], [("marine", 30, 30, CALM)])
    assert float(play(env, state, *[[STOP]] * 10)[0].health[0]) == 20


# the script


def test_the_script_keeps_its_target_while_it_lives():
    env, state = field("terran", [("marine", 9, 16), ("marine", 9, 22)], [("marine", 12, 17, CALM)])
    after, _ = play(env, state, [STOP, STOP])
    assert int(after.target[2]) == 0
    moved = after._replace(x=after.x.at[1].set(11.5), y=after.y.at[1].set(18.0))
    after, _ = play(env, moved, [STOP, STOP])
    assert int(after.target[2]) == 0  # although the other is closer now
    after, _ = play(env, after._replace(health=after.health.at[0].set(0.0)), [0, STOP])
    assert int(after.target[2]) == 1
