"""The many-joint swimmer: a chain of rods in a viscous plane, one motor in every joint.

Sizes, masses, motors and medium are those of the swimmer in multiagent_mujoco, with the time step 0.005 that HARL and
Kaleidoscope use. The chain is built link by link, because XML cannot be nested deeper than a few hundred links.
"""

from typing import Any

from prism_marl.errors import UserError

SCENERY = """
<mujoco model="swimmer">
  <compiler angle="degree" inertiafromgeom="true"/>
  <option integrator="RK4" timestep="0.005" density="4000" viscosity="0.1"/>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="1 1 1" rgb2="0.6 0.7 0.8" width="64" height="64"/>
    <texture name="tiles" type="2d" builtin="checker" rgb1="0.75 0.8 0.85" rgb2="0.85 0.9 0.95" width="64" height="64"/>
    <material name="water" texture="tiles" texuniform="true" texrepeat="1 1"/>
  </asset>
  <worldbody>
    <light directional="true" pos="0 0 10" dir="0 0 -1" diffuse="0.3 0.3 0.3" specular="0 0 0"/>
    <geom name="floor" type="plane" size="0 0 1" pos="0 0 -0.1" material="water" contype="0" conaffinity="0"/>
  </worldbody>
</mujoco>
"""
RADIUS, LENGTH, DENSITY, ARMATURE, GEAR = 0.1, 1.0, 1000.0, 0.1, 150.0
BEND = 100.0  # degrees to either side
LONGEST = 1022  # joints: the engine nests no more bodies


def build_swimmer(engine: Any, joints: int) -> Any:
    """A head and ``joints`` links behind it; nothing collides."""
    if joints > LONGEST:
        raise UserError(
            f"task: MuJoCo builds chains of up to {LONGEST} joints, not {joints}, and one step of such a chain takes "
            "about 0.7 s; choose a shorter swimmer, such as swimmer-128x2 (`footprint` counts all of them)"
        )
    hinge, slide = engine.mjtJoint.mjJNT_HINGE, engine.mjtJoint.mjJNT_SLIDE
    spec = engine.MjSpec.from_string(SCENERY)
    head = spec.worldbody.add_body(name="torso")
    _rod(engine, head, 1.5 * LENGTH, 0.5 * LENGTH)
    for name, kind, axis in (("x", slide, (1, 0, 0)), ("y", slide, (0, 1, 0)), ("turn", hinge, (0, 0, 1))):
        head.add_joint(name=name, type=kind, axis=axis, armature=ARMATURE)
    link = head
    for k in range(joints):
        link = link.add_body(name=f"link{k}", pos=(0.5 * LENGTH if k == 0 else -LENGTH, 0, 0))
        _rod(engine, link, 0.0, -LENGTH)
        link.add_joint(
            name=f"joint{k}",
            type=hinge,
            axis=(0, 0, _side(k, joints)),
            armature=ARMATURE,
            limited=engine.mjtLimited.mjLIMITED_TRUE,
            range=(-BEND, BEND),
        )
        spec.add_actuator(
            name=f"motor{k}",
            target=f"joint{k}",
            trntype=engine.mjtTrn.mjTRN_JOINT,
            gear=(GEAR, 0, 0, 0, 0, 0),
            ctrllimited=engine.mjtLimited.mjLIMITED_TRUE,
            ctrlrange=(-1, 1),
        )
    return spec.compile()


def _side(index: int, joints: int) -> int:
    """The sign of a joint's axis: it alternates, but is positive for the first two joints and the last one."""
    return 1 if index == 0 or index == joints - 1 or index % 2 == 1 else -1


def _rod(engine: Any, body: Any, start: float, end: float) -> None:
    body.add_geom(
        type=engine.mjtGeom.mjGEOM_CAPSULE,
        fromto=(start, 0, 0, end, 0, 0),
        size=(RADIUS, 0, 0),
        density=DENSITY,
        contype=0,
        conaffinity=0,
        rgba=(0.8, 0.6, 0.4, 1),
    )
