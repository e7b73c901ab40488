"""Graph connectivity: IRED's graphs, reachability against scipy, and text."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from letgo.errors import LetgoError
from letgo.tasks.connectivity import Connectivity, components, random_graphs, reachability
from letgo.tasks.task import Problem

pytestmark = pytest.mark.fast

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 24)


def erdos_renyi(rng, n, density):
    """A plain random graph, with more kinds of components than the task's own."""
    upper = np.triu(rng.random((n, n)) < density, 1)
    return torch.from_numpy((upper | upper.T)[None]).float()


def joined(adjacency):
    """The judge: the same component according to scipy."""
    labels = connected_components(adjacency.numpy(), directed=False)[1]
    return torch.from_numpy(labels[:, None] == labels)


@settings(deadline=None, max_examples=100)
@given(seeds, sizes, st.floats(0, 0.4))
def test_reachability_is_being_in_one_component(seed, n, density):
    adjacency = erdos_renyi(np.random.default_rng(seed), n, density)
    assert torch.equal(reachability(adjacency)[0], joined(adjacency[0]))


@pytest.mark.parametrize("n", [2, 3, 5, 8, 9, 16, 17, 18, 33])
def test_the_ends_of_the_longest_possible_path_are_joined(n):
    line = torch.diag(torch.ones(n - 1), 1)
    assert reachability((line + line.T).unsqueeze(0)).all()


@settings(deadline=None, max_examples=50)
@given(seeds, sizes, st.floats(0, 0.4))
def test_relabelling_nodes_permutes_reachability(seed, n, density):
    rng = np.random.default_rng(seed)
    adjacency, order = erdos_renyi(rng, n, density), torch.from_numpy(rng.permutation(n))
    moved = adjacency[:, order][:, :, order]
    assert torch.equal(reachability(moved), reachability(adjacency)[:, order][:, :, order])


@pytest.mark.parametrize(("n", "p"), [(12, 0.2), (18, 0.2), (20, 0.1), (5, 0.1), (2, 0.9), (6, 5.0)])
def test_graphs_are_those_of_a_plain_loop_over_the_same_points(n, p):
    graphs = random_graphs(7, n, p, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    points = rng.random((7, n, 2))
    highest = min(max(1, int(n * p)), n - 1)
    degrees = rng.integers(1, highest + 1, size=(7, n))
    for graph, place, degree in zip(graphs.numpy(), points, degrees, strict=True):
        expected = np.zeros((n, n))
        for i in range(n):
            others = sorted((((place[i] - place[j]) ** 2).mean(), j) for j in range(n) if j != i)
            for _, j in others[: degree[i]]:
                expected[i, j] = expected[j, i] = 1
        assert (graph == expected).all()


def test_graphs_are_undirected_without_loops_and_of_the_reference_degree():
    graphs = random_graphs(4000, 18, 0.2, np.random.default_rng(0))
    assert torch.equal(graphs, graphs.mT)
    assert not graphs.diagonal(dim1=1, dim2=2).any()
    assert graphs.sum(2).min() == 1
    degrees = graphs.sum(2).mean(1)
    scale = (1 / 4000 + 1 / 1500) ** 0.5  # the reference: 2.76, rounded, over 1500 graphs
    assert abs(float(degrees.mean()) - 2.76) < 0.005 + 5 * float(degrees.std()) * scale  # odds 1 in a million


@pytest.mark.parametrize(("n", "connected", "positive"), [(12, 0.27, 0.63), (18, 0.49, 0.77)])
def test_statistics_match_the_reference(n, connected, positive):
    """The reference rounds shares of 1500 graphs to .01; five deviations: odds about 1 in a million."""
    problem = Connectivity().generate(6000, np.random.default_rng(n), str(n))
    shares = problem.solution.double().mean(1)
    scale = (1 / 6000 + 1 / 1500) ** 0.5
    assert abs(float((shares == 1).double().mean()) - connected) < 0.005 + 5 * 0.5 * scale
    assert abs(float(shares.mean()) - positive) < 0.005 + 5 * float(shares.std()) * scale


@pytest.mark.parametrize(("regime", "n"), [(None, 12), ("train", 12), ("12", 12), ("18", 18), ("7", 7)])
def test_the_regime_is_the_number_of_nodes(regime, n):
    problem = Connectivity().generate(5, np.random.default_rng(0), regime)
    assert problem.context is not None
    assert problem.context.shape == (5, n, n)
    assert problem.context.dtype == torch.float32
    assert problem.solution.shape == (5, n**2)
    assert not problem.given.any()
    for adjacency, board in zip(problem.context, problem.solution, strict=True):
        assert torch.equal(board.view(n, n).bool(), joined(adjacency))


@settings(deadline=None, max_examples=50)
@given(seeds, sizes)
def test_changed_entries_are_exactly_the_ones_named(seed, n):
    rng = np.random.default_rng(seed)
    task = Connectivity(n)
    problem = task.generate(3, rng)
    assert task.validate(problem.solution, problem).all()
    flips = torch.from_numpy(rng.random((3, n * n)) < 0.1)
    assert torch.equal(task.violations(problem.solution ^ flips, problem), flips)


def test_the_truth_comes_from_the_graph_and_not_from_the_stored_solution():
    task = Connectivity()
    problem = task.generate(4, np.random.default_rng(0))
    forgetful = Problem(torch.zeros_like(problem.solution), problem.given, problem.context)
    assert task.validate(problem.solution, forgetful).all()
    assert not task.validate(forgetful.solution, forgetful).any()  # each node reaches itself


def test_a_problem_without_its_graph_is_refused():
    boards = torch.ones(1, 4, dtype=torch.long)
    with pytest.raises(LetgoError, match="needs its graph"):
        Connectivity(2).violations(boards, Problem(boards, boards == 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "row 1 of 1 has 0 entries; expected a square such as 010/101/010"),
        ("010/10/010", "row 2 of 3 has 2 entries; expected a square such as 010/101/010"),
        ("010/101", "row 1 of 2 has 3 entries; expected a square such as 010/101/010"),
        ("010/101/01x", "'x' in row 3, column 3; expected 0 or 1"),
        ("010/102/010", "'2' in row 2, column 3; expected 0 or 1"),
        ("010/101/000", "row 2, column 3 and row 3, column 2 differ; an edge goes both ways"),
        ("010/111/010", "row 2 joins node 2 to itself; expected 0 on the diagonal"),
    ],
)
def test_a_malformed_text_is_one_clear_line(text, message):
    with pytest.raises(LetgoError) as error:
        Connectivity().parse(text)
    assert str(error.value) == message


def test_a_drawing_shows_edges_other_joins_and_components():
    task = Connectivity(4)
    problem = task.parse("0100/1010/0100/0000")
    boards = reachability(problem.context).flatten(1).long()
    expected = [
        "   1 2 3 4",
        " 1 + # + .",
        " 2 # + # .",
        " 3 + # + .",
        " 4 . . . +",
        "components: {1, 2, 3} {4}",
    ]
    assert task.draw(boards, problem).splitlines() == expected


@settings(deadline=None, max_examples=50)
@given(seeds, sizes, st.floats(0, 0.3))
def test_components_are_those_of_scipy(seed, n, density):
    adjacency = erdos_renyi(np.random.default_rng(seed), n, density)
    labels = connected_components(adjacency[0].numpy(), directed=False)[1]
    expected = sorted(np.flatnonzero(labels == label).tolist() for label in set(labels.tolist()))
    assert components(adjacency.triu().long()) == expected


@pytest.mark.parametrize("nodes", [1, 257, 5000])
def test_a_graph_has_two_nodes_at_least_and_not_too_many_for_the_memory(nodes: int):
    with pytest.raises(LetgoError, match=f"a graph of {nodes} nodes: choose 2 to 256"):
        Connectivity(nodes)
    with pytest.raises(LetgoError, match=f"a graph of {nodes} nodes|any number of nodes from 2"):
        Connectivity().generate(1, np.random.default_rng(0), str(nodes))


def test_a_graph_as_text_may_be_too_large_too():
    with pytest.raises(LetgoError, match="a graph of 300 nodes: choose at most 256"):
        Connectivity().parse("/".join(["0" * 300] * 300))
