"""Trials that race: the same winner for less time, and nothing left behind."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._inductor.runtime.benchmarking import benchmarker
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

from opsgen.device import GatedCompile, autotuning, reset_compiler, watched_autotuning
from opsgen.device.autotuning import LOSING, MAX_TRIAL_MS, NUM_TRIALS, Race

TIMES = st.lists(st.floats(0.001, 100.0), min_size=1, max_size=12)


class _Card:
    """Calls that take given times; every call of a configuration may be off by some share."""

    def __init__(self, noise=0.0):
        self.noise = noise
        self.spent_ms = 0.0

    def shortest_ms(self, call, num_calls):
        ms = call()
        self.spent_ms += num_calls * ms
        # A shortest time comes down to its value with the number of calls.
        return ms * (1 + self.noise / num_calls)


def raced(times, noise=0.0):
    card = _Card(noise)
    race = Race(card.shortest_ms)
    race.start()
    return [race.time_ms(lambda ms=ms: ms) for ms in times], card.spent_ms


@given(TIMES)
def test_the_fastest_wins(times):
    read, _ = raced(times)
    assert read.index(min(read)) == times.index(min(times))


@given(TIMES, st.floats(0.0, 0.2))
def test_with_noise_the_winner_is_no_slower_than_the_noise_allows(times, noise):
    read, _ = raced(times, noise)
    winner = times[read.index(min(read))]
    share = noise if min(times) * (1 + noise) >= MAX_TRIAL_MS else noise / NUM_TRIALS
    assert winner <= min(times) * (1 + share + 1e-9)


@given(TIMES)
def test_losers_cost_little(times):
    best_so_far, most_ms = float("inf"), 0.0
    for ms in times:
        is_losing = ms > LOSING * best_so_far
        most_ms += (1 + NUM_TRIALS) * ms + (0.0 if is_losing else MAX_TRIAL_MS)
        best_so_far = min(best_so_far, ms)
    assert raced(times)[1] <= most_ms * (1 + 1e-9)


def test_without_triton_kernels_nothing_is_watched():
    run = CachingAutotuner.run
    with watched_autotuning(None) as seen:
        assert CachingAutotuner.run is run
    assert seen.picks == ()


def fail_within(how):
    run = CachingAutotuner.run
    with watched_autotuning(how):
        assert CachingAutotuner.run is not run
        raise KeyError("within")


@pytest.mark.parametrize("how", [autotuning.FULL, autotuning.RACE])
def test_inductor_is_left_as_it_was(how):
    before = dict(vars(CachingAutotuner)), dict(vars(benchmarker))
    with pytest.raises(KeyError, match="within"):
        fail_within(how)
    assert (dict(vars(CachingAutotuner)), dict(vars(benchmarker))) == before


@pytest.mark.gpu
def test_on_a_gpu_a_race_picks_what_is_as_fast():
    class Chain(nn.Module):
        def forward(self, x):
            return torch.softmax(x * 2.0, -1).cumsum(0).relu_()

    x = torch.randn(4096, 8192, device="cuda")
    times_ms, picks = {}, {}
    for how in (autotuning.FULL, autotuning.RACE):
        reset_compiler()
        gated = GatedCompile(Chain())
        gated.compile((x,))
        with watched_autotuning(how) as seen:
            gated(x)
        picks[how] = seen.picks
        times_ms[how] = autotuning._shortest_ms(lambda gated=gated: gated(x), 20)
    assert len(picks["race"]) == len(picks["full"]) >= 1
    assert all("warps=" in pick for pick in picks["race"])
    assert times_ms["race"] == pytest.approx(times_ms["full"], rel=0.03)
