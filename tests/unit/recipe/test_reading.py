"""A recipe is read whole or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.errors import UsageError
from opsgen.recipe import (
    AdmitConfig,
    FleetConfig,
    MeasureConfig,
    ProbeConfig,
    Recipe,
    ReleaseConfig,
    SampleConfig,
    convert_recipe,
    read_recipe,
    write_recipe,
)

PIPELINES = sorted((Path(__file__).parents[3] / "pipelines").glob("*.toml"))
QUICKSTART = next(path for path in PIPELINES if path.name == "quickstart.toml")

shares = st.floats(min_value=0.01, max_value=10.0)
recipes = st.builds(
    Recipe,
    name=st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True),
    seed=st.integers(min_value=0, max_value=2**62),
    sample=st.builds(
        SampleConfig,
        dtypes=st.dictionaries(st.sampled_from(["float32", "bfloat16"]), shares, min_size=1),
        dags=st.floats(min_value=0, max_value=1),
        target_ms=st.tuples(st.floats(0.001, 1.0), st.floats(1.0, 100.0)),
    ),
    probe=st.builds(ProbeConfig, liveness=st.booleans()),
    measure=st.builds(MeasureConfig, device=st.sampled_from(["cpu", "cuda"])),
    admit=st.builds(AdmitConfig, trivial_margin=shares),
    fleet=st.builds(FleetConfig, children_per_device=st.integers(1, 64)),
    release=st.builds(
        ReleaseConfig,
        want=st.dictionaries(
            st.sampled_from(["torch#1", "torch#2"]), st.integers(1, 99), min_size=1
        ),
    ),
)


@given(recipes)
def test_writing_and_reading_is_the_identity(recipe: Recipe) -> None:
    import tomllib

    assert convert_recipe(tomllib.loads(write_recipe(recipe)), "here") == recipe


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_the_pipelines_are_valid(path: Path) -> None:
    assert read_recipe(path).name == path.stem


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("measur.device=cpu", "unknown key measur; did you mean measure?"),
        ("measure.devise=cpu", "unknown key measure.devise; did you mean measure.device?"),
        ("dags=0.1", "unknown key dags; did you mean sample.dags?"),
        ("admit.runtime_window=1", "did you mean admit.runtime_window_ms?"),
        ("measure.device=5", "measure.device: expected str, got int"),
        ("measure.device=tpu", "measure.device: is neither cpu nor cuda"),
        ('measure.modes=["eager", "warp", "compile"]', "measure.modes: warp is none of eager"),
        ('measure.modes=["eager"]', "measure.modes: lacks eager or compile"),
        ('measure.modes=["eager", "eager", "compile"]', "measure.modes: names a mode twice"),
        ("measure.autotuning=fast", "measure.autotuning: is none of race, full"),
        ("fleet.retimed=2", "fleet.retimed: expected float <= 1.0"),
        ("sample=3", "sample: is a section; write [sample]"),
        ("sample.target_ms=[3.0, 1.0]", "sample.target_ms: wants low <= high"),
        ("sample.dtypes={float32=-1.0}", "sample.dtypes[...]: expected float >= 0.0"),
        ("sample.dags=1.5", "sample.dags: expected float <= 1.0"),
        ("measure.max_s_per_mode=-1", "measure.max_s_per_mode: expected float > 0.0"),
        ("fleet.recycle_after=0", "fleet.recycle_after: expected int >= 1"),
        ("fleet.deadlines_s={eagr=1.0}", "fleet.deadlines_s: eagr is none of start, probe"),
        ('release.split={"a/b"=1.0}', "release.split: has a name"),
        ('release.want={"torch#1"=0}', "release.want: wants nothing"),
        ("seed=x", "seed: expected int, got str"),
        ("release.want={}", "release.want: wants nothing"),
    ],
)
def test_mistakes_are_named_with_key_and_nearest(override: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_recipe(QUICKSTART, (override,))
    text = str(caught.value)
    assert text.startswith(f"{QUICKSTART}: ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize("override", ["seed", "=3", "seed.x=3", ".=1"])
def test_malformed_overrides_are_named(override: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        read_recipe(QUICKSTART, (override,))


def test_deadlines_left_out_keep_their_default() -> None:
    recipe = read_recipe(QUICKSTART, ("fleet.deadlines_s={compile=7}",))
    assert recipe.fleet.deadlines_s == {**FleetConfig().deadlines_s, "compile": 7.0}


def test_unreadable_recipes_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.toml: cannot be read"):
        read_recipe(tmp_path / "no.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not UTF-8"):
        read_recipe(tmp_path / "binary.toml")
    (tmp_path / "torn.toml").write_text("name = ")
    with pytest.raises(UsageError, match=r"torn\.toml: is not TOML"):
        read_recipe(tmp_path / "torn.toml")


@given(
    st.recursive(
        st.integers() | st.text() | st.booleans(), lambda inner: st.dictionaries(st.text(), inner)
    )
)
def test_whatever_stands_in_a_recipe_is_refused_in_one_line(value: object) -> None:
    tree = {"name": "x", "seed": 1, "measure": value}
    message = ""
    try:
        recipe = convert_recipe(tree, "here")
    except UsageError as error:
        message = str(error)
    else:
        assert recipe.measure == MeasureConfig()
    assert message.startswith("here: ") or not message
