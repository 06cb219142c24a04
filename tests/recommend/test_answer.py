"""Which designs cannot be told apart, and in which order they answer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from recsim_train.designs.answer import Recommended, answer_document, answer_of, barriers, tie
from recsim_train.designs.making import demand
from recsim_train.designs.searching import STAGES, Design, Found
from recsim_train.designs.shown import document, headline
from recsim_train.designs.space import Space
from recsim_train.designs.wanted import Demand
from recsim_train.results.row import Row
from tests.recommend.conftest import RENT, Spaces

FEW = {
    "embedding_hosts": [1], "dense_hosts": [1], "trainers_per_host": [1], "servers_per_host": [1],
    "hosts": [4],
}  # fmt: skip


def designs(spaces: Spaces, rates: list[float], errors: list[dict[str, float]]) -> list[Design]:
    space = spaces("strategy=[flat_ps, allreduce]", **FEW)
    made = []
    for number, (eps, causes) in enumerate(zip(rates, errors, strict=True)):
        design = Design(number, space.candidates[number % 2])
        design.row = Row(
            examples_per_second=eps,
            eps_low=eps * 0.99,
            eps_high=eps * 1.01,
            calibration_errors=causes,
            strategy=design.kind,
        )
        design.rounds = STAGES
        made.append(design)
    return made


@pytest.mark.parametrize(
    ("apart", "mine", "theirs", "tied"),
    [
        # what errs in both alike says nothing of which is faster
        (0.05, {"prices": 0.2}, {"prices": 0.2}, False),
        (0.05, {"prices": 0.2}, {"prices": 0.15}, True),
        (0.05, {"prices": 0.05}, {}, True),
        (0.01, {"prices": 0.0}, {"prices": 0.0}, True),  # the simulations' own noise
        # what a strategy's model leaves out is its own
        (0.05, {"model": 0.03}, {"model": 0.03}, True),
        (0.3, {"model": 0.03}, {"model": 0.03}, False),
    ],
)
def test_only_what_differs_counts(
    spaces: Spaces, apart: float, mine: dict[str, float], theirs: dict[str, float], tied: bool
) -> None:
    one, other = designs(spaces, [100.0, 100.0 * (1.0 + apart)], [mine, theirs])
    assert tie(one, other) is tie(other, one) is tied


def test_of_one_strategy_the_models_error_is_the_same(spaces: Spaces) -> None:
    one, _, same = designs(spaces, [100.0, 1.0, 105.0], [{"model": 0.05}, {}, {"model": 0.05}])
    assert one.kind == same.kind
    assert not tie(one, same)


def found_by(space: Space, made: list[Design], wanted: Demand, **more: Any) -> Found:
    for design in made:
        design.known = {"trainer: interpreter lock": 441.0}
    return Found(made, wanted, space, **more)


def test_what_misses_the_target_is_not_as_good(spaces: Spaces) -> None:
    space = spaces("strategy=[flat_ps, allreduce]", **FEW)
    rates, causes = [100.0, 98.0, 99.5, 96.0], {"model": 0.2}
    made = designs(spaces, rates, [causes] * 4)
    for target, as_good in ((97.0, [98.0, 99.5]), (99.0, [99.5]), (120.0, [98.0, 99.5, 96.0])):
        answer = answer_of(found_by(space, made, Demand(target=target, by="hosts", likely=True)))
        assert answer.chosen.eps == 100.0
        assert answer.met is (target < 100.0)
        assert sorted(d.eps or 0.0 for d in answer.tied) == sorted(as_good)
        assert len(answer.tied) + len(answer.others) == 3
        many = len(as_good)
        rows = "1 other (row 2" if many == 1 else f"{many} others (rows 2 to {1 + many}"
        said = [str(item) for item in document(answer).items]
        assert any(f"{rows} above) cannot be told from it" in item for item in said)


@pytest.mark.parametrize("target", [None, 300.0, 500.0])
def test_a_short_simulation_says_no_more_than_it_knows(
    spaces: Spaces, target: float | None
) -> None:
    """Beyond its bound it is cut; it has no interval, and is no answer to yes or no."""
    space = spaces("strategy=[flat_ps, allreduce]", **FEW)
    made = designs(spaces, [607.0, 430.0, 435.0], [{}] * 3)
    for design in made:
        design.rounds = 1
    answer = answer_of(found_by(space, made, Demand(target=target), stopped=True))
    assert answer.chosen.eps == 441.0
    assert [d.interval for d in made] == [None] * 3
    assert answer.met is (False if target == 500.0 else None)  # which no bound allows
    assert answer.tied == ()
    said = " ".join(headline(answer).split())
    assert "so far, with nothing simulated in full, is" in said
    assert "441" in said
    assert "607" not in said
    assert not re.search(r"\d to \d|Yes", said)
    assert said.startswith("No, not 500 examples/s") is (target == 500.0)
    shown = document(answer)
    words = [str(item) for item in shown.items]
    assert not any("as good" in word or "cannot be told" in word for word in words)
    kept = answer_document(answer)
    assert kept["chosen"]["in_full"] is False
    for design in (kept["chosen"], *kept["others"]):
        assert design["interval90"] is None
        assert design["examples_per_second"] <= design["bound"]


def test_an_interrupted_search_says_how_many_it_simulated_in_full(spaces: Spaces) -> None:
    space = spaces("strategy=[flat_ps, allreduce]", **FEW)
    made = designs(spaces, [100.0, 400.0], [{}] * 2)
    made[1].rounds = 2
    yes = answer_of(found_by(space, made, Demand(target=50.0, by="hosts"), stopped=True))
    assert yes.chosen is made[0]
    assert yes.met is True
    assert "found so far, with 1 design simulated in full, is flat_ps" in headline(yes)
    open_ = answer_of(found_by(space, made, Demand(target=200.0), stopped=True))
    assert open_.met is None  # the other one may be enough
    assert headline(open_).startswith("Not known yet, 200 examples/s with 4 hosts: the best found")
    done = answer_of(found_by(space, made, Demand(target=200.0)))
    assert done.met is False
    assert "so far" not in headline(done)
    found = found_by(space, made, Demand(target=200.0), left_out=[made[1]])
    assert answer_document(answer_of(found))["evaluated"]["may_be_better"] == 1


def test_no_bound_below_a_prediction_is_beside_it(spaces: Spaces) -> None:
    """A look's is, at times; the prediction's own are not, but for rounding."""
    space = spaces("strategy=[flat_ps, allreduce]", **FEW)
    (made,) = designs(spaces, [467.0], [{}])
    assert made.row is not None
    own = {"trainer[0].interpreter": 470.0, "trainer[1].interpreter": 466.9, "loops": 900.0}
    made.row = replace(made.row, bounds=own)
    answer = answer_of(found_by(space, [made], Demand(target=1000.0)))
    (chosen,) = (answer_document(answer)["chosen"],)
    assert chosen["bound"] == 467.0
    assert chosen["bounds"] == {"trainer: interpreter lock": 467.0, "loops": 900.0}
    assert [one.allows for one in barriers(made, 1000.0)] == [467.0, 900.0]
    made.row = replace(made.row, bounds=None)
    assert made.bounds == {"trainer: interpreter lock": 467.0}


def test_what_is_lacking_is_said_with_its_number(spaces: Spaces) -> None:
    (made,) = designs(spaces, [100.0], [{}])
    for allows, takes in ((200.0, 10), (100.0, 20), (300.0, 7)):
        made.known, made.rounds = {"trainer: cores": allows}, 1
        (one,) = barriers(made, 500.0)
        assert one.says == f"it takes {takes} cores of trainers, and there are 4"


def test_in_which_order_designs_answer(spaces: Spaces) -> None:
    small = spaces("strategy=allreduce", RENT, strategies="false", **{**FEW, "hosts": [2]})
    large = spaces("strategy=allreduce", RENT, strategies="false", **FEW)
    (two,), (four,) = small.candidates, large.candidates
    fast = Demand()
    assert fast.order(four, 200.0) < fast.order(two, 150.0)
    enough = Demand(target=100.0, by="hosts")
    assert enough.order(two, 150.0) < enough.order(four, 200.0)
    assert enough.order(four, 200.0) < enough.order(two, 90.0)
    cheap = Demand(by="cost")
    assert cheap.order(two, 150.0) < cheap.order(four, 200.0)
    assert cheap.order(four, 400.0) < cheap.order(two, 150.0)
    # fewer hosts without a target: what each of them gives
    assert Demand(by="hosts").order(two, 150.0) < Demand(by="hosts").order(four, 200.0)
    assert Demand(by="hosts").order(four, 400.0) < Demand(by="hosts").order(two, 150.0)
    # where the target is not met its distance counts, not the price
    for by in ("cost", "hosts"):
        missed = Demand(target=500.0, by=by)
        assert missed.order(four, 400.0) < missed.order(two, 150.0)
        assert missed.order(two, 150.0) < missed.order(four, 150.0)
    # of what is not enough the fastest, whatever it costs
    assert enough.order(four, 90.0) < enough.order(two, 50.0)
    dear = Demand(target=100.0, by="cost")
    assert dear.order(four, 90.0) < dear.order(two, 50.0)
    paid = Demand(budget=5.0)
    assert paid.affordable(two)
    assert not paid.affordable(four)
    assert Demand(budget=4.0).affordable(two)  # which costs just that
    (free,) = spaces("strategy=allreduce", strategies="false", **FEW).candidates
    assert not Demand(budget=1e9).affordable(free)  # nobody knows what it costs
    assert Demand().affordable(free)


def test_fewer_hosts_may_be_dearer(spaces: Spaces) -> None:
    dear = RENT.replace("default", "embedding_server").replace("per_hour: 2", "per_hour: 20")
    kind = "cluster.hosts.embedding_server={cores: 2, memory: 8 GiB, nic: 1 Gbit/s}"
    made = []
    for hosts, serving in ((2, 1), (4, 0)):
        few = {**FEW, "hosts": [hosts], "embedding_hosts": [serving], "strategies": "false"}
        made += spaces("strategy=allreduce", RENT, kind, dear, **few).candidates
    (two, four), rates = made, (150.0, 200.0)
    assert (two.per_hour, four.per_hour) == (22.0, 8.0)
    for by, best in (("hosts", two), ("cost", four), ("throughput", four)):
        wanted = Demand(target=100.0, by=by)  # type: ignore[arg-type]
        order = sorted(zip(made, rates, strict=True), key=lambda known: wanted.order(*known))
        assert order[0][0] is best


@pytest.mark.parametrize("sets", [[], [RENT]], ids=["free", "priced"])
def test_what_counts_where_it_is_not_said(spaces: Spaces, sets: list[str]) -> None:
    few = spaces("strategy=allreduce", *sets, strategies="false", **FEW)
    assert demand(few, None, None, None, False).by == "throughput"
    assert demand(few, 100.0, None, None, False).by == ("cost" if sets else "hosts")


def answered(spaces: Spaces, wanted: Demand, *known: tuple[int, float, float]) -> Recommended:
    """Of designs by (hosts, examples per second, half of their interval as a share)."""
    made = []
    for number, (hosts, eps, half) in enumerate(known):
        few = {**FEW, "hosts": [hosts], "embedding_hosts": [0]}
        space = spaces("strategy=allreduce", RENT, strategies="false", **few)
        design = Design(number, space.candidates[0], rounds=STAGES)
        design.row = Row(
            examples_per_second=eps,
            eps_low=eps,
            eps_high=eps,
            calibration_low=eps * (1 - half),
            calibration_high=eps * (1 + half),
            calibration_errors={"prices": half / 2},
        )
        made.append(design)
    return answer_of(Found(made, wanted, space))


@pytest.mark.parametrize(
    ("by", "first"), [("cost", 2), ("hosts", 2), ("throughput", 8)], ids=["cost", "hosts", "eps"]
)
def test_where_none_meets_the_target_what_is_faster_for_less_is_first(
    spaces: Spaces, by: Any, first: int
) -> None:
    """Of 8 hosts the lower end of the interval is nearer to the target; 2 hosts are faster."""
    wanted = Demand(target=1000.0, by=by)
    known = (8, 179.0, 0.1), (2, 185.0, 0.3), (4, 190.0, 0.3), (1, 20.0, 0.1)
    answer = answered(spaces, wanted, *known)
    assert answer.met is False
    assert answer.chosen.candidate.hosts == first
    # what is slower is no answer, however cheap; it is listed beside, the cheapest first
    slower = answered(spaces, wanted, (8, 179.0, 0.1), (4, 175.0, 0.2), (2, 170.0, 0.3))
    assert slower.chosen.candidate.hosts == 8
    assert [d.candidate.hosts for d in slower.tied] == [2, 4]


@pytest.mark.parametrize(
    ("by", "hosts"), [("cost", [4, 1, 2]), ("hosts", [4, 1, 2]), ("throughput", [4, 2, 1])]
)
def test_rows_are_in_the_order_of_what_was_asked_for(
    spaces: Spaces, by: Any, hosts: list[int]
) -> None:
    """Examples/s of a host: 80, 75, 100; each costs as much."""
    answer = answered(spaces, Demand(by=by), (1, 80.0, 0.01), (2, 150.0, 0.01), (4, 400.0, 0.01))
    assert not answer.tied
    assert [d.candidate.hosts for d in (answer.chosen, *answer.others)] == hosts


def test_a_host_of_servers_is_one_of_those_that_examples_are_divided_by(spaces: Spaces) -> None:
    (made,) = designs(spaces, [100.0], [{}])
    space = spaces("strategy=[flat_ps, allreduce]", **FEW)
    said = headline(answer_of(found_by(space, [made], Demand(by="hosts"))))
    assert "4 hosts (2 trainers of" in said
    assert ": 25.0 examples/s per host, the most examples/s per host found" in said


def test_without_a_target_the_prediction_itself_counts(spaces: Spaces) -> None:
    """What the table shows is what it is sorted by."""
    answer = answered(spaces, Demand(by="cost"), (2, 150.0, 0.2), (4, 290.0, 0.01))
    assert answer.chosen.candidate.hosts == 2
