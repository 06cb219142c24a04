"""Cluster profiles: finding, reading, writing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.cluster import (
    ASSUMED_THREADS,
    FORMAT,
    UNKNOWN,
    Calibration,
    Cluster,
    Costs,
    Host,
    Network,
    Price,
)
from recsim_train.config.dump import dump_cluster, dump_yaml
from recsim_train.config.errors import UserError
from recsim_train.config.measured import Pooled
from recsim_train.config.problems import ConfigErrors
from recsim_train.config.profiles import find_cluster, load_cluster
from recsim_train.config.validate import plain
from recsim_train.placement.hosts import host_types

PROFILES = Path(__file__).parents[2] / "cluster_profiles"
OURS = sorted(path for path in PROFILES.glob("*.yaml") if path.stem != "local")


def profile(**changes: object) -> dict[str, Any]:
    data: dict[str, Any] = {
        "format": FORMAT,
        "name": "test",
        "hosts": {"default": {"cores": 4, "memory": "24 GiB", "nic": "25 Gbit/s"}},
        "network": {"latency": "50 us"},
        "costs": {name: {"value": "3 ns", "uncertainty": "1 %"} for name in Costs.model_fields},
        "threads": plain(ASSUMED_THREADS, digits=6),
    }
    return data | changes


def write(folder: Path, data: dict[str, Any], name: str = "p") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(dump_yaml(data), encoding="utf-8")
    return path


def failure(path: Path) -> str:
    with pytest.raises(ConfigErrors) as caught:
        load_cluster(str(path))
    return str(caught.value)


RENT = {"per_hour": 1.5, "currency": "EUR", "source": "a contract", "date": "2026-11-01"}


def rented(**changes: object) -> dict[str, Any]:
    host = {"cores": 4, "memory": "24 GiB", "nic": "25 Gbit/s"}
    return profile(hosts={"default": host | {"rent": RENT | changes}})


def test_a_profile_of_before_the_prices_of_files_is_called_one(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    text = (PROFILES / "reference-2core.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("read_row:", "parse_row:"), encoding="utf-8")
    said = r"costs\.parse_row: .* is of an earlier version, which .*: calibrate again"
    with pytest.raises(ConfigErrors, match=said):
        load_cluster(str(path))


def test_what_hosts_cost(tmp_path: Path) -> None:
    dear = [{"rent": RENT | {"per_hour": 4}, "count": 1}, {"cores": 8}]
    cluster = load_cluster(str(write(tmp_path, {**rented(), "mixed": {"trainer": dear}})))
    rents = [host.rent for host in host_types({"trainer": 2}, cluster)["trainer"]]
    assert [rent and (rent.per_hour, rent.currency, rent.date) for rent in rents] == [
        (4.0, "EUR", "2026-11-01"),
        (1.5, "EUR", "2026-11-01"),
    ]
    assert load_cluster(str(write(tmp_path, profile()))).host("trainer").rent is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"per_hour": 0}, "rent.per_hour: expected"),
        ({"per_hour": "1.5 EUR"}, "rent.per_hour: expected"),
        ({"currency": ""}, "rent.currency: expected"),
        ({"source": " "}, "rent.source: expected"),
        ({"date": "1 November"}, "rent.date: expected"),
    ],
)
def test_a_cost_that_says_too_little(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    assert said in failure(write(tmp_path, rented(**changes)))
    (missing,) = changes
    left = {key: value for key, value in RENT.items() if key != missing}
    host = {"cores": 4, "memory": "24 GiB", "nic": "25 Gbit/s", "rent": left}
    assert f"rent.{missing}: missing" in failure(
        write(tmp_path, profile(hosts={"default": host}), "q")
    )


def test_currencies_are_not_converted(tmp_path: Path) -> None:
    mixed = {"trainer": [{"rent": RENT | {"currency": "USD"}}]}
    said = failure(write(tmp_path, {**rented(), "mixed": mixed}))
    assert "mixed.trainer[0].rent.currency: expected EUR as elsewhere" in said


@pytest.mark.parametrize("path", OURS, ids=lambda p: p.name)
def test_our_own_profiles_load(path: Path) -> None:
    cluster = load_cluster(str(path))
    assert cluster.host("trainer").cores >= 1


@pytest.mark.parametrize("path", OURS, ids=lambda p: p.name)
def test_our_own_profiles_claim_no_more_than_was_measured(path: Path) -> None:
    """Measured once, or at an end of what is searched: only the magnitude is known."""
    costs = load_cluster(str(path)).costs
    for name in Costs.model_fields:
        price = getattr(costs, name)
        if price.value > 0.0:
            assert price.basis is not None, name
        if price.basis in UNKNOWN:
            assert price.uncertainty == 1.0, name
    assert costs.collective_step.basis == "once"
    if costs.handover.value > 0.0:
        longest = costs.handover.value == pytest.approx(5e-4)
        assert longest == (costs.handover.basis == "limit")


@pytest.mark.parametrize("basis", sorted(UNKNOWN))
def test_a_price_that_was_not_measured_twice_cannot_be_known_well(
    tmp_path: Path, basis: str
) -> None:
    data = profile()
    data["costs"]["call"] = {"value": "5 us", "uncertainty": "2 %", "basis": basis}
    message = f"costs.call.uncertainty: expected 100 %, because its basis is {basis!r}"
    assert message in failure(write(tmp_path, data))


@pytest.mark.parametrize(
    ("version", "says"),
    [(None, "it has no format"), (FORMAT + 1, "it has the format 2"), ("1", "the format '1'")],
)
def test_a_profile_of_another_version_is_refused_in_one_sentence(
    tmp_path: Path, version: object, says: str
) -> None:
    data = profile(jitter=-1)  # whatever else it says
    del data["format"]
    path = write(tmp_path, data | ({} if version is None else {"format": version}))
    with pytest.raises(UserError) as caught:
        load_cluster(str(path))
    said = str(caught.value)
    assert said.startswith(f"{path}: the profile was made by another version of recsim-train: ")
    assert says in said
    assert "calibrate again" in said
    assert f"`format: {FORMAT}`" in said  # for who has written it by hand
    assert "\n" not in said


def test_a_price_that_every_profile_has_is_missed_in_one_sentence(tmp_path: Path) -> None:
    data = profile()
    del data["costs"]["call"]
    assert "costs.call: missing; expected a mapping (One tensor" in failure(write(tmp_path, data))


def test_a_profile_need_not_say_what_its_prices_rest_on(tmp_path: Path) -> None:
    data = profile()
    data["costs"]["handover"] = {"value": "50 us", "uncertainty": "2 %"}
    assert load_cluster(str(write(tmp_path, data))).costs.handover.basis is None


def test_reads(tmp_path: Path) -> None:
    cluster = load_cluster(str(write(tmp_path, profile())))
    assert cluster.host("reader").nic == 25e9 / 8
    assert cluster.network.latency == pytest.approx(50e-6)
    assert cluster.costs.call.uncertainty == 0.01


def test_a_price_may_be_its_value_alone(tmp_path: Path) -> None:
    data = profile()
    data["costs"]["call"] = "5 us"
    assert load_cluster(str(write(tmp_path, data))).costs.call == Price(value="5 us")


HOST = {"cores": 4, "memory": "24 GiB", "nic": "25 Gbit/s"}
THREADS = plain(ASSUMED_THREADS, digits=6)
MEASURED = {
    "operation": "load",
    "shape": "any; elements 475985",
    "seconds": "150 us",
    "alone": "140 us",
    "uncertainty": "2 %",
    "work": {"stream_byte": 3807880.0, "call": 1.0},
}


def test_measured_operations_are_read(tmp_path: Path) -> None:
    pooled = {"threads": 2, "seconds": "100 us", "cpu": "170 us"}
    several = [MEASURED, MEASURED | {"shape": "16 x 26 fab90e6f; ", "pooled": pooled}]
    cluster = load_cluster(str(write(tmp_path, profile(operations=several))))
    assert cluster.operations is not None
    assert [entry.pooled is None for entry in cluster.operations] == [True, False]
    assert cluster.operations[0].seconds == pytest.approx(150e-6)
    assert cluster.operations[1].times(2.0).pooled == Pooled(
        threads=2, seconds="200 us", cpu="340 us"
    )
    text = dump_cluster(cluster)
    (tmp_path / "again.yaml").write_text(text, encoding="utf-8")
    assert load_cluster(str(tmp_path / "again.yaml")).operations == cluster.operations
    assert load_cluster(str(write(tmp_path, profile()))).operations is None


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        (
            {"threads": THREADS | {"rows": {"serial": "10 %", "overhead": "20 %"}}},
            "threads.rows.overhead: expected at most rows.serial (10.000%), got 20.000%",
        ),
        (
            {"threads": THREADS | {"pairs": {"serial": "10 %", "basis": "limit"}}},
            "threads.pairs.uncertainty: expected 100 %, because its basis is 'limit'",
        ),
        (
            {"threads": THREADS | {"wake": {"wall": "10 us", "caller": "20 us", "pool": "5 us"}}},
            "threads.wake.caller: expected at most wake.wall, 1e-05 s: no thread is busy for",
        ),
        (
            {
                "threads": THREADS
                | {"wake": {"wall": "1 us", "caller": "0 s", "pool": "0 s", "basis": "limit"}}
            },
            "threads.wake.uncertainty: expected 100 %, because its basis is 'limit'",
        ),
        ({"threads": {"serial": "10 %"}}, "threads.serial: unknown"),
        ({"threads": {"measured": 4}}, "threads.rows: missing; expected a mapping (Rows read at"),
        (
            {"hosts": {"default": HOST | {"nic": 25}}},
            "hosts.default.nic: expected a data rate with its unit, such as '25 Gbit/s': 25 has no",
        ),
        (
            {"hosts": {"default": HOST | {"nic": "25 Gbps"}}},
            "unknown unit 'Gbps' for a data rate; did you mean 'Gbit/s'? Known: B/s, kB/s",
        ),
        (
            {"hosts": {"default": HOST | {"nic": "0 GB/s"}}},
            "hosts.default.nic: expected a data rate above 0",
        ),
        (
            {"hosts": {"default": HOST | {"memory": "24 us"}}},
            "hosts.default.memory: unknown unit 'us' for a size",
        ),
        (
            {"hosts": {"default": HOST, "trainers": HOST}},
            "hosts.trainers: unknown key in hosts; did you mean 'trainer'?",
        ),
        ({"hosts": {"trainer": HOST}}, "hosts: missing host type 'default'"),
        (
            {"hosts": {"default": {"cores": 0, "memory": "1 GB", "nic": "1 GB/s"}}},
            "hosts.default.cores: expected an integer of at least 1, got 0",
        ),
        ({"network": {}}, "network.latency: missing; expected a duration such as '50 us'"),
        ({"network": {"latency": "1 s", "efficiency": 1.5}}, "above 0 and at most 1, got 1.5"),
        ({"costs": {}}, "costs.gemm_flop: missing; expected a mapping (One floating-point"),
        ({"costs": {"call": "5"}}, "costs.call.value: expected a duration with its unit"),
        ({"jitter": -0.1}, "jitter: expected a number of at least 0 and at most 2, got -0.1"),
        ({"colocate": "yes"}, "colocate: expected true or false, got 'yes'"),
        (
            {"operations": [MEASURED | {"work": {"gem_flop": 3.0}}]},
            "there is no price 'gem_flop'; did you mean 'gemm_flop'?",
        ),
        (
            {"operations": [MEASURED, MEASURED | {"shape": "batch 128"}]},
            "operations[1].shape: expected settings, a semicolon and sizes",
        ),
        (
            {"operations": [MEASURED | {"seconds": "0 us"}]},
            "operations[0].seconds: expected a duration above 0",
        ),
        (
            {"operations": [MEASURED | {"pooled": {"threads": 2, "seconds": "1 s", "cpu": "3 s"}}]},
            "operations[0].pooled.cpu: 2 threads cannot be busy for longer",
        ),
        (
            {"operations": [MEASURED | {"pooled": {"threads": 1, "seconds": "1 s", "cpu": "1 s"}}]},
            "operations[0].pooled.threads: expected an integer of at least 2, got 1",
        ),
        ({"jiter": 0.1}, "jiter: unknown key; did you mean 'jitter'?"),
        (
            {"calibration": {"date": "2026-11-20", "machine": "m", "valid_range": {"b": [1]}}},
            "calibration.valid_range.b[1]: missing; expected a number",
        ),
    ],
)
def test_bad_profiles_are_explained(
    tmp_path: Path, changes: dict[str, object], fragment: str
) -> None:
    message = failure(write(tmp_path, profile(**changes)))
    assert fragment in message
    assert "Input should" not in message
    assert "[key]" not in message


def test_all_at_once(tmp_path: Path) -> None:
    data = profile(jitter=-1, hosts={"default": HOST | {"nic": 25}}, nam="x")
    path = write(tmp_path, data)
    assert failure(path).endswith(f"3 problems in {path}")


class TestFinding:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        self.root = tmp_path
        self.experiment = tmp_path / "repo" / "experiments" / "e.yaml"

    def test_by_name_in_the_current_directory(self) -> None:
        write(Path("cluster_profiles"), profile(name="mine"), "mine")
        assert find_cluster("mine", self.experiment) == Path("cluster_profiles/mine.yaml")
        assert load_cluster("mine", self.experiment).name == "mine"

    def test_by_name_beside_the_experiments(self) -> None:
        (self.root / "repo" / "experiments").mkdir(parents=True)
        write(self.root / "repo" / "cluster_profiles", profile(name="theirs"), "theirs")
        assert load_cluster("theirs", self.experiment).name == "theirs"
        assert find_cluster("theirs") is None

    def test_by_path(self) -> None:
        path = write(self.root / "else", profile(name="p"))
        assert load_cluster(str(path), None).name == "p"

    def test_absent_name_lists_what_there_is(self) -> None:
        write(Path("cluster_profiles"), profile(), "datacentre")
        write(Path("cluster_profiles"), profile(), "laptop")
        with pytest.raises(UserError) as caught:
            load_cluster("datacenter", self.experiment)
        assert str(caught.value) == (
            "there is no cluster profile 'datacenter'; did you mean 'datacentre'? "
            "Available: datacentre, example-racks, laptop, paper-20core-25gbit, reference-2core"
        )

    def test_absent_local_says_how_to_make_it(self) -> None:
        assert find_cluster("local", self.experiment) is None
        with pytest.raises(UserError) as caught:
            load_cluster("local", self.experiment)
        assert str(caught.value) == (
            "there is no cluster profile 'local' (this machine's) yet; make it with "
            "`recsim-train calibrate -o cluster_profiles/local.yaml` (available: example-racks, "
            "paper-20core-25gbit, reference-2core)"
        )

    def test_absent_path(self) -> None:
        with pytest.raises(UserError, match=r"cluster profile x/y\.yaml: no such file; profiles"):
            load_cluster("x/y.yaml")

    def test_directory(self) -> None:
        with pytest.raises(UserError, match="cannot be read as a cluster profile: Is a directory"):
            load_cluster(f"{self.root}/here")

    def test_empty_name(self) -> None:
        with pytest.raises(UserError, match="there is no cluster profile ''"):
            load_cluster("")


def measured() -> Cluster:
    """A profile with odd numbers and awkward texts, as a calibration makes it."""
    seconds = {name: 1.2345678e-9 * 7.3 ** (i % 23) for i, name in enumerate(Costs.model_fields)}
    return Cluster(
        name="local",
        description="first line\nsecond: line # not a comment",
        colocate=True,
        hosts={
            "default": Host(cores=2, memory=f"{16_384_123_904} B", nic="3.1415926535 GB/s"),
            "trainer": Host(cores=40, memory="256 GB", nic="25 Gbit/s"),
        },
        network=Network(latency="23.456789 us", efficiency=1448 / 1514, connection_cap="1 GB/s"),
        contention=0.87654321,
        jitter=0.01234567,
        costs=Costs(
            **{
                name: Price(
                    value=f"{value!r} s", uncertainty=f"{i * 0.7} %", basis=(None, "fit")[i % 2]
                )
                for i, (name, value) in enumerate(seconds.items())
            }
        ),
        threads=ASSUMED_THREADS,
        calibration=Calibration(
            date="2026-11-20",
            machine="Some CPU @ 2.10GHz: 2 cores",
            versions={"python": "3.11", "torch": "2.13", "other": "1e3", "octal": "0o17"},
            background_load="0.5",
            seconds=93.25,
            command="recsim-train calibrate -o 'a b.yaml'",
            residuals={"gemm": "median 3 %, worst 12 %"},
            valid_range={"training.batch_size": (32.0, 1024.5)},
        ),
    )


def agree(a: object, b: object) -> bool:
    """Equal, numbers to six significant digits."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(agree(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=5.1e-6)
    return a == b and type(a) is type(b)


def test_a_written_profile_reads_back(tmp_path: Path) -> None:
    before = measured()
    path = tmp_path / "local.yaml"
    path.write_text(dump_cluster(before, "made by a test\n\nnot by hand"), encoding="utf-8")
    assert agree(before.model_dump(mode="json"), load_cluster(str(path)).model_dump(mode="json"))


def test_the_written_text_has_units() -> None:
    text = dump_cluster(measured(), "made by a test\n\nsecond line")
    assert text.startswith("# made by a test\n#\n# second line\nformat: 1\nname: local\n")
    assert "nic: 25 Gbit/s" in text
    assert "call: {value: 1.23457 ns, uncertainty: 0 %}" in text
    assert "interpreter: {value: 9.01234 ns, uncertainty: 0.7 %, basis: fit}" in text


def test_no_calibration_no_section() -> None:
    text = dump_cluster(measured().model_copy(update={"calibration": None}))
    assert "calibration" not in text
    assert text.startswith("format:")
