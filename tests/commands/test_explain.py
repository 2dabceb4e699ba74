"""``gpuwatch explain``: the list of rules and their documentation."""

import json

import pytest

from gpuwatch.commands import cli
from gpuwatch.commands.explain import paragraphs, rule_list, rule_page
from gpuwatch.diagnosis.engine.catalogue import RULES
from gpuwatch.outputs.terminal.table import cell_width


def test_explain_lists_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """With its first line."""
    assert cli.run(["explain"]) == 0
    page = capsys.readouterr().out
    assert all(rule.name in page for rule in RULES)
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("name", ["oscillation", "loader-cpu-bound", "Loader_CPU_bound"])
def test_explain_prints_a_rule_s_documentation(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name, in any case, with dashes too."""
    assert cli.run(["explain", name]) == 0
    page = capsys.readouterr().out
    assert page.startswith(name.lower().replace("-", "_"))
    assert "What it checks" in page


def test_explain_as_json_has_the_whole_text(capsys: pytest.CaptureFixture[str]) -> None:
    """For whoever shows it elsewhere."""
    assert cli.run(["explain", "oscillation", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert cli.run(["explain", "--json"]) == 0
    every = json.loads(capsys.readouterr().out)["rules"]
    assert one["rule"] == "oscillation"
    assert [each["rule"] for each in every] == [rule.name for rule in RULES]
    assert one["documentation"] in [each["documentation"] for each in every]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("oscilation", "oscillation"), ("loader", "loader_"), ("\x1b[2Jzzzz", "There is no rule")],
)
def test_a_name_that_is_no_rule_is_one_sentence(
    name: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With those that are close; harmless, whatever was typed."""
    assert cli.run(["explain", name]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert "\x1b" not in err


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_documentation_is_wrapped_and_loses_no_word(width: int) -> None:
    """At every width; headings and lists stay on lines of their own."""
    for rule in RULES:
        page = rule_page(rule, width)
        assert max(map(cell_width, page.splitlines())) <= width
        kept = page.replace("…", "").split()
        if width >= 80:
            assert kept == [rule.name, *rule.documentation.split()]
    assert max(map(cell_width, rule_list(RULES, width).splitlines())) <= width


def test_lines_that_only_their_length_parted_are_put_together() -> None:
    """A heading, a list item and another indent begin anew."""
    text = "First line\nof it.\n\nHeading\n    Some text\n    that goes on\n    - one\n    - two"
    assert paragraphs(text) == [
        "First line of it.",
        "",
        "Heading",
        "    Some text that goes on",
        "    - one",
        "    - two",
    ]
