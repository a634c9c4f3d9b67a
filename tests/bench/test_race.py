"""The harness measures what it says, by a clock that only the calls move."""

import pytest
from timing import Goal, Timing, medians, race
from timing.llama import interval, llama_ratios
from timing.measure import Case, Variant, compared, measure


class Clock:
    """Moved by the calls that it makes."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def __call__(self):
        return self.now

    def call(self, name, seconds, result=lambda: None):
        def run():
            self.now += seconds
            self.log.append(name)
            return result()

        return run


def test_seconds_of_one_call_in_every_round():
    clock = Clock()
    times = race({"a": clock.call("a", 2.0), "b": clock.call("b", 5.0)}, rounds=4, repeat=3, warm_up=2, clock=clock)
    assert times == {"a": [2.0] * 4, "b": [5.0] * 4} and medians(times) == {"a": 2.0, "b": 5.0}
    assert clock.log.count("a") == clock.log.count("b") == (2 + 4) * 3  # two rounds of warm-up, which are not counted


def test_every_round_runs_all_calls_in_an_order_of_its_own():
    clock = Clock()
    race({name: clock.call(name, 1.0) for name in "abcd"}, rounds=20, warm_up=0, clock=clock)
    rounds = ["".join(clock.log[i : i + 4]) for i in range(0, 80, 4)]
    assert all(sorted(order) == list("abcd") for order in rounds) and len(set(rounds)) > 5


def test_a_call_that_becomes_slower_while_others_run_is_seen():
    clock, spent = Clock(), iter([1.0, 2.0, 9.0, 4.0])

    def drifting():
        clock.now += next(spent)

    assert race({"a": drifting}, rounds=3, warm_up=1, clock=clock) == {"a": [2.0, 9.0, 4.0]}


def test_freeing_a_result_is_not_part_of_a_call_that_is_timed_alone():
    clock = Clock()

    class Result:
        def __del__(self):
            clock.now += 100.0

    assert race({"a": clock.call("a", 1.0, Result)}, rounds=3, clock=clock) == {"a": [1.0] * 3}


def test_the_ratio_is_the_median_of_the_ratios_of_rounds_and_not_the_ratio_of_medians():
    times = {"ours": [1.0, 2.0, 30.0], "unit": [1.0, 4.0, 10.0]}
    found = compared(times, "ours", "unit", None)
    assert found.ratio == 1.0 and found.spread == (0.75, 2.0)  # of 1, 0.5 and 3
    assert (found.us, found.unit_us) == (2e6, 4e6)
    assert compared({"ours": [3.0], "unit": [2.0]}, "ours", "unit", None).spread == (1.5, 1.5)


def toy(seen, clock, **more):
    def make(setting: Variant):
        import torch

        seen.append((setting, torch.get_num_threads(), torch.is_grad_enabled()))
        return {"phasor": clock.call("phasor", 3.0), "clone": clock.call("clone", 4.0)}

    return Case("toy", "", make, unit="clone", goals={"float16": Goal("at most", 0.7)}, **more)


def test_a_row_of_a_case():
    seen, clock = [], Clock()
    (row,) = measure(toy(seen, clock, repeat=5), "float16", "interleaved", memory="fresh", rounds=2, clock=clock)
    goal = Goal("at most", 0.7)
    quartiles = (0.75, 0.75), "quartiles"
    assert row == Timing(
        "toy", "float16", "interleaved", "fresh", 1, "phasor", "clone", 3e6, 4e6, 0.75, *quartiles, goal
    )
    assert row.met is False and clock.log.count("clone") == (5 + 2) * 5
    (setting, threads, gradient) = seen[0]
    assert setting.interleaved and (threads, gradient) == (1, False)


@pytest.mark.parametrize(
    "threads, of_case, clock", [(1, 1, "thread_time"), (2, 1, "perf_counter"), (1, 2, "perf_counter")]
)
def test_cpu_time_on_one_thread_and_wall_time_on_several(monkeypatch, threads, of_case, clock):
    import torch

    moved, still = Clock(), Clock()
    for name in ("thread_time", "perf_counter"):
        monkeypatch.setattr(f"timing.measure.time.{name}", moved if name == clock else still)
    before, seen = torch.get_num_threads(), []
    case = toy(seen, moved, threads=of_case, gradient=True)
    (row,) = measure(case, "float32", "halves", memory="as found", rounds=1, threads=threads)
    assert (row.ratio, row.threads, row.goal) == (0.75, 2 if clock == "perf_counter" else 1, None)
    assert seen[0][1:] == (row.threads, True) and torch.get_num_threads() == before


@pytest.mark.parametrize(
    "goal, ratio, spread, met",
    [
        (Goal("at most", 0.9), 0.9, (0.5, 1.0), True),
        (Goal("at most", 0.9), 0.91, (0.5, 1.0), False),
        (Goal("at least", 4.5), 4.5, None, True),
        (Goal("at least", 4.5), 4.4, None, False),
        (Goal("interval not above", 1.0), 0.98, (0.97, 1.0), True),
        (Goal("interval not above", 1.0), 1.02, (1.01, 1.03), False),
        (Goal("interval not above", 1.0), 0.99, (0.98, 1.03), False),
    ],
)
def test_goals(goal, ratio, spread, met):
    assert goal.met(ratio, spread) is met


def test_a_rule_that_no_goal_has():
    with pytest.raises(ValueError, match="rule of a goal must be 'at most', 'at least' or 'interval not above', got"):
        Goal("below", 1.0)


def test_what_patching_saves():
    times = {"patched": [9.0, 9.2, 9.1], "unpatched": [10.0, 10.0, 10.0], "none": [9.0, 9.0, 9.0]}
    whole, share = llama_ratios(toy([], Clock()), "float32", times)
    assert whole.ratio == pytest.approx(0.91) and whole.spread == pytest.approx((0.9, 0.92))
    assert whole.spread_of == "95 % interval"
    assert share.ratio == pytest.approx(0.9) and share.goal.met(share.ratio, None)
    # a rotation whose cost is lost in noise has no share that could be saved
    assert len(llama_ratios(toy([], Clock()), "float32", times | {"none": [10.0, 11.0, 10.5]})) == 1


def test_the_interval_holds_the_median_and_shrinks_with_rounds():
    import random
    import statistics

    source = random.Random(1)
    widths = []
    for rounds in (10, 1000):
        values = [source.gauss(1.0, 0.1) for _ in range(rounds)]
        low, high = interval({"a": values}, lambda chosen, v=values: statistics.median(v[i] for i in chosen), draws=400)
        assert low <= statistics.median(values) <= high
        widths.append(high - low)
    # the median of n normal values has the standard error 1.25 * 0.1 / sqrt(n); 95 % are 3.92 of them
    assert widths[1] == pytest.approx(3.92 * 1.25 * 0.1 / 1000**0.5, rel=0.4) and widths[1] < widths[0] / 3
