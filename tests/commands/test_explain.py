"""``gpuwatch explain``: the list of rules and their documentation."""

import pytest

from gpuwatch.commands.explain import rule_list, rule_page
from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.outputs.terminal import cell_width
from tests.commands.conftest import Gpuwatch


def test_explain_lists_every_rule(gpuwatch: Gpuwatch) -> None:
    """With its first line; as JSON with the whole text, for whoever shows it elsewhere."""
    page = gpuwatch("explain").out
    assert all(rule.name in page for rule in RULES)
    assert max(map(len, page.splitlines())) <= 80
    every = gpuwatch("explain", "--json").json["rules"]
    one = gpuwatch("explain", "oscillation", "--json").json
    assert one["rule"] == "oscillation"
    assert [each["rule"] for each in every] == [rule.name for rule in RULES]
    assert one["documentation"] in [each["documentation"] for each in every]


@pytest.mark.parametrize("name", ["oscillation", "loader-cpu-bound", "Loader_CPU_bound"])
def test_explain_prints_a_rule_s_documentation(name: str, gpuwatch: Gpuwatch) -> None:
    """By its name, in any case, with dashes too."""
    page = gpuwatch("explain", name).out
    assert page.startswith(name.lower().replace("-", "_"))
    assert "What it checks" in page


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("oscilation", "oscillation"), ("loader", "loader_"), ("\x1b[2Jzzzz", "There is no rule")],
)
def test_a_name_that_is_no_rule_is_one_sentence(
    name: str, sentence: str, gpuwatch: Gpuwatch
) -> None:
    """With those that are close; harmless, whatever was typed."""
    assert sentence in gpuwatch("explain", name, code=2).err


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_documentation_is_wrapped_and_loses_no_word(width: int) -> None:
    """At every width; headings stay on lines of their own."""
    for rule in RULES:
        page = rule_page(rule, width)
        assert max(map(cell_width, page.splitlines())) <= width
        kept = page.replace("…", "").split()
        if width >= 80:
            assert kept == [rule.name, *rule.documentation.split()]
    assert max(map(cell_width, rule_list(RULES, width).splitlines())) <= width


def test_a_rule_is_found_by_the_name_of_its_cause(gpuwatch: Gpuwatch) -> None:
    """As the screens and reports have it."""
    by_cause = gpuwatch("explain", "Loader is CPU-bound").out
    assert by_cause == gpuwatch("explain", "loader_cpu_bound").out
