"""Records survive their JSON form, NaN and infinities included."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsgen.records import NoopEvidence, decode_line, digest, encode_line

records = st.builds(
    NoopEvidence,
    key=st.text(),
    pid=st.integers(min_value=0, max_value=2**31),
    metrics=st.dictionaries(st.text(), st.floats()),
)


@given(records)
def test_a_line_gives_back_the_record(record: NoopEvidence) -> None:
    line = encode_line(record)
    assert b"\n" not in line
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = decode_line(line, NoopEvidence)
    assert repr(again) == repr(record)
    assert digest(again) == digest(record)
