from prism_marl.envs.scene import Scene


def draw(*a):
    return Scene(32.0, 32.0, ())
