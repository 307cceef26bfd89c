"""The environment record and what a machine lacks."""

import pytest
import torch

from opsgen.device import environment_id, find_cpp_compiler, read_environment
from opsgen.records import Environment, decode_line, encode_line


@pytest.fixture(autouse=True)
def _fresh():
    read_environment.cache_clear()
    yield
    read_environment.cache_clear()


def test_a_record_of_this_machine():
    environment = read_environment("cpu")
    assert environment.torch == torch.__version__
    assert environment.device_name
    assert environment.num_threads == torch.get_num_threads()
    assert environment.problems == ()
    assert environment.compiler == find_cpp_compiler()
    assert decode_line(encode_line(environment), Environment) == environment
    assert environment_id(environment) == environment_id(read_environment("cpu"))


def test_no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    environment = read_environment("cuda")
    assert environment.problems == ('device = "cuda" but torch sees no CUDA device',)
    assert environment_id(environment) != environment_id(read_environment("cpu"))


def test_no_compiler():
    from torch._inductor import config

    with config.patch({"cpp.cxx": (None, "/nonexistent/g++")}):
        (problem,) = read_environment("cpu").problems
    assert "C++ compiler" in problem
    assert "CXX" in problem
    assert "\n" not in problem
