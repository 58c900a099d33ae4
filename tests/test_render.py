"""Drawings: aligned text, plain JSON and pictures."""

import dataclasses
import json

from prism_marl.render.draw import scene_to_image, scene_to_text
from prism_marl.scene import FOE, FOOD, INK, PALETTE, Scene, Shape, colour_of, scene_to_json


def frame(x: float = 0.5, *, grid: bool = True) -> Scene:
    shapes = (
        Shape("square", 2.5, 1.5, 0.8, -1, "3", "*"),
        Shape("disc", x, 0.5, 0.8, 0, "2", "A", ring=True),
        Shape("cross", 1.5, 1.5, 0.8, 9, "", "x"),
    )
    return Scene(4.0, 2.0, shapes, grid, f"at {x}", {"step": 1.0})


def test_text_is_an_aligned_grid():
    assert scene_to_text(frame()).split("\n") == [
        "---------------",
        "A2! .   .   .",
        ".   x   *3  .",
        "---------------",
        "at 0.5",
    ]


def test_text_names_everybody_on_a_shared_cell():
    shared = Scene(2.0, 1.0, (Shape("disc", 0.4, 0.5, 0.5, 0, "1", "A"), Shape("disc", 0.6, 0.5, 0.5, 1, "2", "B")))
    assert scene_to_text(shared).split("\n")[1] == "A1B2 ."


def test_text_of_a_continuous_scene_has_one_character_a_cell():
    lines = scene_to_text(frame(grid=False)).split("\n")
    assert lines[1:3] == ["A", " x*"]
    wide = Scene(640.0, 320.0, (Shape("disc", 640.0, 320.0, 1.0, 0, glyph="Z"),), grid=False)
    lines = scene_to_text(wide).split("\n")
    assert len(lines[0]) == 64 and len(lines) == 34 and lines[-2].endswith("Z")


def test_json_is_plain_and_complete():
    data = scene_to_json(frame())
    assert json.loads(json.dumps(data)) == data
    assert [shape["fill"] for shape in data["shapes"]] == [FOOD, PALETTE[0], PALETTE[9 % len(PALETTE)]]
    assert data["shapes"][1]["ring"] is True and data["caption"] == "at 0.5" and data["extra"] == {"step": 1.0}


def test_the_picture_shows_the_colours_where_the_shapes_are():
    image = scene_to_image(frame())
    unit = (image.width - 1) // 4
    assert image.getpixel((round(0.25 * unit), round(0.5 * unit))) == (0x00, 0x72, 0xB2)
    assert image.getpixel((round(2.25 * unit), round(1.5 * unit))) == (0x00, 0x9E, 0x73)
    assert image.getpixel((round(3.5 * unit), round(0.5 * unit))) == (255, 255, 255)


def test_a_legend_stands_under_the_caption_and_shapes_end_at_the_edge():
    wide = Scene(8.0, 4.0, (Shape("circle", 4.0, 4.0, 6.0, 0),), grid=False, caption="")
    image, said = scene_to_image(wide), scene_to_image(dataclasses.replace(wide, legend="A: an agent"))
    assert said.width == image.width and said.height > image.height
    below = (0, 321, image.width, image.height)  # the circle's lower half would lie here
    assert image.crop(below).getcolors() == [(image.width * (image.height - 321), (255, 255, 255))]
    assert len(said.crop((0, image.height, said.width, said.height)).getcolors(1000)) > 2
    assert colour_of(Shape("square", 0.0, 0.0, 1.0, FOE)) == INK
