"""What is said and shown about battles: the layout of observations, the unit table, drawings."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from battlefield import ACT, STOP, field, play

from prism_marl.envs.skirmish import RACES, Skirmish, make_skirmish
from prism_marl.envs.skirmish.fields import fields
from prism_marl.envs.skirmish.units import COLOSSUS, ZEALOT, Unit
from prism_marl.render.draw import scene_to_image, scene_to_text
from prism_marl.scene import GOAL, SHIELD, scene_to_json

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def held(title: str) -> str:
    """What the page has between its marks."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- {title}:")
    return rest.partition("-->\n")[2].partition("\n<!-- end of ")[0]


def layout(env: Skirmish) -> str:
    rows = ["| index | name | from | to | meaning |", "|---|---|---|---|---|"]
    for f in fields(env):
        where = str(f.index) if f.count == 1 else f"{f.index} + {f.stride}k"
        rows.append(f"| {where} | `{f.name}` | {f.low} | {f.high} | {f.meaning} |")
    return "\n".join(rows)


def attack(unit: Unit) -> str:
    if unit.shot == "heal":
        return "heals 9 health/s, 3 for a point of energy"
    bonus = f" (+{unit.bonus:g} {unit.against})" if unit.bonus else ""
    shape = {"line": ", line 2.8 x 0.3", "burst": ", radius 2.2, dies"}.get(unit.shot, "")
    return f"{unit.damage:g}{bonus}{f' x {unit.hits}' if unit.hits > 1 else ''}{shape}"


def table() -> str:
    titles = ("unit", "health", "shields", "armor", "attack", "cooldown s", "range", "speed", "radius", "sight", "body")
    rows = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for race in RACES.values():
        for unit in race.units:
            health = f"{unit.health:g}" + (f" (enemy {unit.enemy_health:g})" if unit.enemy_health else "")
            speed = f"{unit.speed:g}" + (f" (enemy {unit.enemy_speed:g})" if unit.enemy_speed else "")
            body = [*([unit.body] if unit.body != "none" else []), *(["air"] if unit.flies else [])]
            numbers = (f"{value:g}" for value in (unit.shield, unit.armor))
            reach = (f"{value:g}" for value in (unit.cooldown, unit.range))
            rest = (f"{value:g}" for value in (unit.radius, unit.sight))
            cells = (unit.name, health, *numbers, attack(unit), *reach, speed, *rest, ", ".join(body) or "-")
            rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def test_the_page_lists_the_observation_and_the_units_of_the_code():
    wanted = layout(make_skirmish("terran_5_vs_5"))
    assert held("fields of skirmish/terran_5_vs_5") == wanted, f"paste this into {PAGE.name}:\n{wanted}"
    assert held("units of skirmish") == table(), f"paste this into {PAGE.name}:\n{table()}"


@pytest.mark.parametrize("task", ["terran_5_vs_5", "protoss_10_vs_11", "zerg_6_vs_4"])
def test_fields_cover_every_number_once(task: str):
    env = make_skirmish(task)
    places = [f.index + f.stride * k for f in fields(env) for k in range(f.count)]
    assert sorted(places) == list(range(env.spec.observation))


def test_fields_name_the_right_numbers():
    env, state = field("protoss", [("zealot", 8, 24), ("stalker", 10, 24, {"shield": 40})], [("colossus", 8, 20)])
    _, step = play(env, state._replace(cooldown=state.cooldown + 1e6), [STOP, STOP])
    seen = {f.name: float(step.obs.local[0, f.index]) for f in fields(env)}
    near = {
        name: pytest.approx(value, abs=0.08) for name, value in {"enemy<k>.dy": -4 / 9, "ally<k>.dx": 2 / 9}.items()
    }
    exact = {"own.is_zealot": 1, "own.x": 0.25, "own.y": 0.75, "ally<k>.shield": 0.5, "enemy<k>.is_colossus": 1}
    assert {name: seen[name] for name in near | exact} == near | exact
    assert seen["enemy<k>.target"] == 0 and seen["ally<k>.seen"] == 1 and seen["move.north"] == 1


def test_a_drawing_shows_types_health_shields_targets_and_ranges():
    enemies = [("zealot", 8, 20), ("zealot", 28, 28, {"health": 0})]
    env, state = field("protoss", [("stalker", 6, 24, {"shield": 40}), ("colossus", 20, 4)], enemies)
    state, _ = play(env, state, [ACT, STOP])
    scene = env.scene(state)
    bodies = [shape for shape in scene.shapes if shape.kind in ("disc", "square")]
    assert [(b.kind, b.label, b.ring) for b in bodies] == [
        ("disc", "S", True),
        ("disc", "C", False),
        ("square", "Z", False),
    ]
    assert bodies[0].y == pytest.approx(32 - float(state.y[0]))  # north is up
    assert [shape.size for shape in scene.shapes if shape.kind == "circle"] == [2 * 6.625, 2 * 8.0]
    lines = [shape for shape in scene.shapes if shape.kind == "bar" and shape.size < 0.1]
    assert len(lines) == 2 and lines[0].x + lines[0].dx == pytest.approx(float(state.x[2]))  # the zealot comes, too
    bars = [shape for shape in scene.shapes if shape.kind == "bar" and shape.size > 0.1]
    assert len(bars) == 3 * 4
    health, shield = bars[1], bars[3]
    assert (health.colour, shield.colour) == (GOAL, SHIELD) and health.y > bodies[0].y > shield.y
    assert shield.dx / health.dx == pytest.approx(40 / 80, abs=0.01)
    assert scene.legend.startswith("S stalker, Z zealot, C colossus; ") and "blue: shield" in scene.legend
    text = scene_to_text(scene)
    assert "S" in text and "C" in text and "z" in text and "?" not in text and "1/200, 2 against 1" in text
    assert scene_to_json(scene)["extra"]["enemies alive"] == 1
    picture = np.asarray(scene_to_image(scene))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20


@pytest.mark.parametrize(("gap", "near"), [(0.05, True), (0.25, False)])
def test_a_ring_counts_from_edge_to_edge(gap: float, near: bool):
    apart = ZEALOT.range + ZEALOT.radius + COLOSSUS.radius + gap - 0.1
    env, state = field("protoss", [("zealot", 10, 10)], [("colossus", 10 + apart, 10)])
    scene = env.scene(state._replace(target=jnp.array([1, -1], state.target.dtype)))
    assert [shape.ring for shape in scene.shapes if shape.kind == "disc"] == [near]


def test_drawing_needs_no_device_arrays():
    env = make_skirmish("zerg_2_vs_2")
    state, _ = env.reset(jax.random.key(0))
    assert env.scene(jax.device_get(state)) == env.scene(jax.tree.map(jnp.asarray, state))
