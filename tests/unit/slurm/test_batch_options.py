"""sbatch's options as it reads them, from words that anybody may have written."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.errors import ConfigError
from omfs_daemon.slurm.batch_options import BatchOptions, batch_options, time_limit
from omfs_daemon.slurm.batch_words import OptionWord, count_of_options, given_options


def read(text: str) -> BatchOptions:
    return batch_options([OptionWord("job.sh, line 2", word) for word in text.split()])


def request(text: str) -> JobRequest:
    options = read(text)
    return options.request(options.nodes, "main")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("1:30", 120), ("0:59", 60), ("2:00:00", 7200), ("1-2", 93600), ("1-2:30", 95400),
        ("1-0:0:1", 86460), ("0", inf), ("UNLIMITED", inf), ("infinite", inf), ("-1", inf), ("00:00", inf),
        ("x", None), ("", None), ("1:2:3:4", None), ("1-", None), ("-5", None), ("1.5", None), ("\u0661", None),
    ],
)  # fmt: skip
def test_times_are_those_of_slurm(text: str, seconds: float | None) -> None:
    assert time_limit(text) == seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"cpus": 1, "nodes": 1, "max_nodes": 0}),
        ("-n4", {"cpus": 4, "nodes": 1}),
        ("-n 4 -c2 -N2", {"cpus": 8, "nodes": 2, "max_nodes": 2, "min_cpus_per_node": 2}),
        ("-N3", {"cpus": 3, "nodes": 3}),
        ("-N2-4 --ntasks-per-node=8", {"cpus": 16, "nodes": 2, "max_nodes": 4, "min_cpus_per_node": 8}),
        ("-n10 --ntasks-per-node=4", {"cpus": 10, "nodes": 3}),
        ("-n2 -N5", {"cpus": 2, "nodes": 2}),
        ("--nodes=1k", {"nodes": 1024}),
        ("-N 1,3,8-12:2", {"nodes": 1, "max_nodes": 12}),
        ("-n8 -N2 --gpus=a100:4", {"gres": (("gpu", 2), ("gpu:a100", 2))}),
        ("-n8 -N2 --gpus-per-task=1", {"gres": (("gpu", 4),)}),
        ("--gres=ve:2 --gpus-per-node=1", {"gres": (("gpu", 1), ("ve", 2))}),
        ("--gres=gpu:2 --gres=none", {"gres": ()}),
        ("--mem=2G", {"memory_per_node": 2 << 30}),
        ("--mem-per-cpu=500", {"memory_per_cpu": 500 << 20}),
        ("--exclusive", {"exclusive": True}),
        ("--exclusive=user", {"exclusive": False}),
        ("-w n[1-2] -x n7,n9", {"required_nodes": frozenset({"n1", "n2"}), "excluded_nodes": frozenset({"n7", "n9"})}),
        ("-w n1,n2", {"nodes": 2}),
        ("-C fast&ve", {"features": "fast&ve"}),
    ],
)
def test_what_is_requested(text: str, expected: dict[str, Any]) -> None:
    found = request(text)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.partitions == ("main",)


def test_the_last_of_each_option_counts_in_every_spelling() -> None:
    options = read("-p a --partition=b --part c -HQt5 --time 10 --job-name=x -J y --no-requeue -A bio -q high -M k,l")
    assert (options.partitions, options.limit, options.name) == (("c",), 600, "y")
    assert (options.account, options.qos, options.clusters, options.requeue) == ("bio", "high", ("k", "l"), False)
    assert options.others == ("hold",)


def test_only_the_last_value_of_an_option_is_read() -> None:
    options = read("-x n[1-9 --gpus-per-node=a:b:c:d --requeue -n0 -x n1 --gpus-per-node=1 -n4 --no-requeue --requeue")
    assert (options.excluded_nodes, options.gres, options.tasks) == (frozenset({"n1"}), (("gpu", 1),), 4)
    assert options.requeue, "of two options that change the same the last one counts"


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n[1-2,5],m7", "m7 n1 n2 n5"),
        ("n[1-2]m[1-2],x", "n1m1 n1m2 n2m1 n2m2 x"),
        ("n[08-10]", "n08 n09 n10"),
        ("a,a,b", "a b"),
        (",".join(f"n{number}" for number in range(900)), " ".join(f"n{number}" for number in range(900))),
    ],
)
def test_lists_of_nodes(text: str, nodes: str) -> None:
    assert read(f"--exclude={text}").excluded_nodes == set(nodes.split())


@pytest.mark.parametrize("text", ["[" * 9000, "]n[1]", "n[1[2]]", "n[1-9999]," * 9, "[1-9]" * 1900, "n[1-2", "n]"])
def test_lists_of_too_many_nodes_or_with_brackets_that_do_not_match(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--exclude = .*: must be a list of at most 20,000 nodes"):
        read(f"--exclude={text}")


def test_a_range_of_nodes_that_is_too_small_is_named_with_its_own_place() -> None:
    words = [OptionWord("job.sh, line 2", "-n9"), OptionWord("job.sh, line 3", "--ntasks-per-node=2")]
    with pytest.raises(ConfigError, match=r"^the command line: --nodes = '2-3': must be at least 5, what --ntasks"):
        batch_options([*words, OptionWord("the command line", "-N2-3")])


def test_options_that_no_estimate_knows_are_named() -> None:
    options = read(
        "--omfs-bound=2 --omfs-x --begin=now+1hour -d afterok:7 -o out --mail-type=END --site-thing word -n2"
    )
    assert options.others == ("omfs-bound", "omfs-x", "begin", "dependency", "site-thing")
    assert options.tasks == 2


def test_the_script_is_the_first_word_that_is_no_option() -> None:
    words = [OptionWord("", word) for word in ("-n", "4", "--time=5", "-Q", "--exclusive", "job.sh", "-N")]
    assert count_of_options(words) == 5
    assert [option.name for option in given_options(words[:5])] == ["ntasks", "time", "quiet", "exclusive"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("-n0", "job.sh, line 2: --ntasks = '0': must be a whole number from 1"),
        ("-n \u0663", "must be a whole number"),
        ("-n 99999999999999999999", "must be a whole number"),
        ("--time=soon", "--time = 'soon': must be minutes, minutes:seconds"),
        ("-n", "job.sh, line 2: -n needs a value"),
        ("--partition", "--partition needs a value"),
        ("-Z", "-Z: sbatch has no such option"),
        ("job.sh", "'job.sh': must be an option of sbatch"),
        ("-- -n4", "'--': must be an option of sbatch"),
        ("hetjob", "of heterogeneous jobs no start is estimated"),
        ("-n2 : -n3", "of heterogeneous jobs"),
        ("--mem=4X", "must be a size such as"),
        ("-N 4-2", "must be a number or a range of nodes"),
        ("-N 0", "must be a number or a range of nodes"),
        ("-N 2-3 -n9 --ntasks-per-node=2", "must be at least 5"),
        ("--gres=a:b:c:d:1", "must be names and counts"),
        ("-p a,,b", "must be 1 to 50 names"),
        ("-p " + ",".join("abcdefgh"[i % 8] + str(i) for i in range(60)), "must be 1 to 50 names"),
        ("-w n[1-", "must be a list of at most 20,000 nodes"),
        ("-w n[1-999999999]", "must be a list of at most 20,000 nodes"),
        ("-w n[1-1000]m[1-1000]", "must be a list of at most 20,000 nodes"),
        ("-x a[1-19000],b[1-19000]", "must be a list of at most 20,000 nodes"),
        ("-A bio;rm", "must be a name without blanks and commas"),
    ],
)
def test_wrong_values_are_named_with_their_place(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(text)
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


@given(
    st.lists(st.one_of(st.text(max_size=30), st.sampled_from(["-n", "4", "--mem=1G", "-N2-3", "--gres", "ve:1", "-p"])))
)
def test_any_words_give_a_request_or_one_error(words: list[str]) -> None:
    try:
        options = batch_options([OptionWord("x", word) for word in words])
    except ConfigError:
        return
    found = options.request(options.nodes, "main")
    assert found.cpus >= found.nodes >= 1
