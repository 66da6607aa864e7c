"""Reading YAML safely."""

import pytest

from pipeline_core.config.yaml_files import read_yaml

_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n",
            "a.yaml:5: c is given a second time, first in line 3",
        ),
        ("a: " + "[" * 5000 + "]" * 5000, "a.yaml: is nested too deeply"),
        ("a: &a [*a]\n", "a.yaml: is nested too deeply, or within itself"),
        ("a:\n  - 010\n", "a.yaml:2: YAML reads 010 as 8; write that number, or quote"),
        ("a: 1:30\n", "a.yaml:1: YAML reads 1:30 as 90; write that number, or quote"),
        ("a: -2:30.5\n", "a.yaml:1: YAML reads -2:30.5 as -150.5; write"),
        ("a: {no: 1}\n", "a.yaml:1: YAML reads the key 'no' as False; quote it"),
        ("a:\n  1.50: 1\n", "a.yaml:2: YAML reads the key '1.50' as 1.5; quote it"),
        (_BOMB, "a.yaml:7: aliases expand to more than 1000000 values"),
        ("a: [", "cannot be read as YAML"),
        ("a: !!python/object/apply:os.system ['true']", "cannot be read as YAML"),
        ("- a", "expected a mapping"),
        ("", "expected a mapping"),
    ],
)
def test_yaml_that_is_a_trap_is_refused(tmp_path, text, message):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"a\.yaml") as caught:
        read_yaml(path)
    assert message in str(caught.value)
    with pytest.raises(ValueError, match=r"b\.yaml: no such file; did you mean 'a\.yaml'\?"):
        read_yaml(tmp_path / "b.yaml")


def test_numbers_and_words_as_people_write_them_are_read(tmp_path):
    path = tmp_path / "a.yaml"
    text = "a: [0, 10, -7, 0.5, 007x, '010', 1e-3, 1.0e-3, true, 0x10]\n1: {'no': 2}\n"
    for mark, end in (("", "\n"), ("\ufeff", "\r\n")):  # as an editor of Windows leaves them
        path.write_bytes((mark + text.replace("\n", end)).encode())
        content = read_yaml(path)
        assert content["a"] == [0, 10, -7, 0.5, "007x", "010", "1e-3", 0.001, True, 16]
        assert content[1] == {"no": 2}


def test_yaml_may_merge_a_mapping(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  x: 3\n")
    assert read_yaml(path)["b"] == {"x": 3, "y": 2}
