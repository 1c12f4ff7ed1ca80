"""The installed command, as people and programs run it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from installed import COMMAND, SAMPLE, answer, clew, run


def _examples() -> list[tuple[str, str]]:
    """The table in the sample's README: query | file."""
    rows = []
    for line in (SAMPLE / "README.md").read_text("utf-8").splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 2 and (SAMPLE / cells[1]).is_file():
            rows.append((cells[0], cells[1]))
    return rows


def test_the_sample_has_examples() -> None:
    assert len(_examples()) >= 12


@pytest.mark.parametrize(("query", "path"), _examples())
def test_each_example_of_the_sample_is_found(notes: Path, query: str, path: str) -> None:
    found = [hit["path"] for hit in answer("search", query, cwd=notes)["results"]]
    assert path in found[:5]


def test_people_see_titles_places_and_snippets(notes: Path) -> None:
    shown = clew("search", "electric fuse keeps blowing", "-n", "2", cwd=notes)
    assert shown.returncode == 0
    assert "The sauna heater trips the breaker" in shown.stdout
    assert "journal/2025-05-30-sauna-heater.md:" in shown.stdout
    assert "2 results in" in shown.stdout


def test_athenas_form_has_its_heading_and_its_block(notes: Path) -> None:
    asked = "keel bolt torque of the Kestrel 32"
    shown = clew("search", asked, "-n2", "--format", "athena", cwd=notes).stdout
    heading, *_, last = shown.splitlines()
    assert heading.startswith("🔍 SMART SEARCH (") and heading.endswith(f'"{asked}"')
    inside = shown.partition("\n<athena_grounding>\n")[2].partition("\n</athena_grounding>\n")[0]
    assert re.search(r"^  1\. .*\[RRF:\d+\.\d{4}\] Keel bolts, Kestrel 32", inside, re.M)
    assert "     📁 protocols/keel-bolts-kestrel-32.md:" in inside
    assert last.startswith("2 results in")


def test_explain_shows_rank_score_and_contribution_of_every_leg(notes: Path) -> None:
    shown = clew("search", "--explain", "keel bolt torque", cwd=notes).stdout
    assert "keyword" in shown and "vectors" in shown
    assert "rank" in shown and "adds" in shown and "100% embedded" in shown
    for stage in ("parse", "collect", "fuse", "snippet"):
        assert re.search(rf"^  {stage} .*[▏▎▍▌▋▊▉█].* ms", shown, re.M)


def test_explain_as_a_page_for_a_browser(notes: Path, tmp_path: Path) -> None:
    out = tmp_path / "why.html"
    done = clew("search", "--explain", "--html", out, "keel bolt torque", cwd=notes)
    assert done.returncode == 0, done.stderr
    drawn = ElementTree.parse(out).getroot()
    assert "Keel bolts, Kestrel 32" in "".join(drawn.itertext())


def test_run_search_prints_what_the_command_prints(notes: Path) -> None:
    code = "import clew; clew.run_search('keel bolt torque', limit=2)"
    called = run(sys.executable, "-c", code, cwd=notes)
    assert called.returncode == 0, called.stderr
    commanded = clew("search", "keel bolt torque", "-n2", "--format", "athena", cwd=notes)
    assert called.stdout.splitlines()[:-1] == commanded.stdout.splitlines()[:-1]


def test_debug_says_which_cache_answered(notes: Path) -> None:
    asked = ("search", "--debug", "where did the varnish peel", "-n", "2")
    first, second = (clew(*asked, cwd=notes).stdout for _ in range(2))
    assert "no cache answered" in first and "answered by the exact cache" in second
    assert "2 results in" in second and ", from the exact cache" in second
    assert first.partition("\nScores")[0] == second.partition("\nScores")[0]
    assert "no cache answered" in clew(*asked, "--no-cache", cwd=notes).stdout


def test_output_that_cannot_take_every_character_gets_the_others(notes: Path) -> None:
    shown = clew("search", "miso soup", cwd=notes, PYTHONIOENCODING="ascii")
    assert shown.returncode == 0 and "miso-soup.md:" in shown.stdout
    found = answer("search", "Zoë miso", cwd=notes, PYTHONIOENCODING="ascii")
    assert found["trace"]["query"] == "Zoë miso"


def test_a_pipe_is_answered_without_rich(notes: Path) -> None:
    code = (
        "import sys; from clew.cli import run; code = run(sys.argv[1:]);"
        "print(code, 'rich' in sys.modules, file=sys.stderr)"
    )
    for options in ([], ["--explain"], ["--json"]):
        asked = ("search", "keel", "--mode", "keyword", *options)
        done = run(sys.executable, "-c", code, *asked, cwd=notes)
        assert done.stderr.split() == ["0", "False"]


def test_ignored_files_are_not_found(notes: Path) -> None:
    assert answer("search", "--mode", "keyword", "xylotomous", cwd=notes)["results"] == []


def test_nothing_found_is_no_error(notes: Path) -> None:
    found = answer("search", "--mode", "keyword", "qqqqxyzzy", cwd=notes)
    assert found["results"] == [] and found["message"]


def test_filters_work_from_options_and_from_the_query(notes: Path) -> None:
    by_option = answer("search", "crane", "--path", "meetings/", cwd=notes)["results"]
    by_query = answer("search", "crane path:meetings/", cwd=notes)["results"]
    assert by_option and [h["id"] for h in by_option] == [h["id"] for h in by_query]
    assert all(hit["path"].startswith("meetings/") for hit in by_option)
    assert {
        h["metadata"]["type"]
        for h in answer("search", "x", "--type", "table", cwd=notes)["results"]
    } <= {"table"}


def test_a_store_is_found_from_a_folder_below_and_by_name(notes: Path, tmp_path: Path) -> None:
    below = answer("search", "TX-4471-B", cwd=notes / "projects")["results"]
    named = answer("search", "TX-4471-B", "--store", notes, cwd=tmp_path)["results"]
    assert below[0]["path"] == named[0]["path"] == "projects/roaster-rebuild.md"


def test_get_takes_an_id_or_a_path(notes: Path) -> None:
    by_path = answer("get", "CANONICAL.md", cwd=notes)
    assert answer("get", by_path["id"], cwd=notes) == by_path
    missing = clew("get", "no-such", cwd=notes)
    assert missing.returncode == 1 and "no-such" in missing.stderr


def test_status_and_doctor_say_that_all_is_well(notes: Path) -> None:
    figures = answer("status", cwd=notes)
    assert figures["embedded"] == 1.0 and figures["ready"] and figures["records"] >= 30
    assert figures["vectors"]["stage"] == "exact" and figures["vectors"]["recall"] == 1.0
    assert answer("doctor", cwd=notes)["ok"]
    assert "generation" in clew("status", cwd=notes).stdout


def test_doctor_names_what_is_wrong_and_mends_it(notes: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(notes, copy)
    rows = next((copy / ".clew" / "derived").glob("vectors-*/rows-*.f32"))
    rows.write_bytes(bytes(rows.stat().st_size))
    ill = clew("doctor", cwd=copy)
    assert ill.returncode == 1 and "--mend" in ill.stdout
    assert clew("doctor", "--mend", cwd=copy).returncode == 0
    assert clew("doctor", cwd=copy).returncode == 0


def test_a_second_run_changes_nothing_and_remove_can_be_undone(notes: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(notes, copy)
    report = answer("index", cwd=copy)
    assert report["unchanged"] == 37 - 1 and report["embedded"] == 0 and report["added"] == []
    assert answer("remove", "recipes/miso-soup.md", cwd=copy) == {"removed": 1}
    assert answer("get", "CANONICAL.md", cwd=copy)["id"]
    assert clew("get", "recipes/miso-soup.md", cwd=copy).returncode == 1
    assert answer("index", cwd=copy)["added"] == ["recipes/miso-soup.md"]


def test_settings_are_shown_changed_and_reset(tmp_path: Path) -> None:
    assert clew("init", cwd=tmp_path).returncode == 0
    assert "# fusion" in (tmp_path / "clew.toml").read_text("utf-8")
    assert clew("config", "fusion", "rrf", cwd=tmp_path).stdout.strip() == "rrf"
    assert answer("config", cwd=tmp_path)["fusion"] == "rrf"
    assert answer("config", cwd=tmp_path, CLEW_FUSION="dbsf")["fusion"] == "dbsf"
    assert clew("config", "fusion", "--unset", cwd=tmp_path).stdout.strip() == "adaptive"
    wrong = clew("config", "fuson", "rrf", cwd=tmp_path)
    assert wrong.returncode == 1 and "fusion" in wrong.stderr


def test_offline_without_weights_indexes_words_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "n.md").write_text("# Knots\n\nA bowline does not slip.\n", "utf-8")
    nowhere = str(tmp_path / "models")
    report = answer("index", "--offline", cwd=tmp_path, CLEW_MODELS=nowhere)
    assert report["notes"] and "clew models pull" in report["notes"][0]
    found = answer("search", "bowline", cwd=tmp_path, CLEW_MODELS=nowhere)
    assert found["results"][0]["path"] == "n.md" and found["degraded"]
    assert not answer("status", cwd=tmp_path, CLEW_MODELS=nowhere)["ready"]


def test_models_are_listed_with_their_place(tmp_path: Path) -> None:
    listed = {m["id"]: m for m in answer("models", "list", cwd=tmp_path)}
    assert listed["bge-small"]["installed"] and listed["bge-small"]["dim"] == 384
    assert Path(clew("models", "path", "bge-small", cwd=tmp_path).stdout.strip()).is_dir()
    assert clew("models", "path", "bge-smal", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("search", "x", "--limit", "-1"), "limit"),
        (("search", "x", "--after", "soon"), "2026-03-14"),
        (("search", "x", "--meta", "status"), "KEY=VALUE"),
        (("search", "x", "--source", "keywrd"), "keyword"),
        (("index", "no/such/folder"), "no/such/folder"),
        (("remove",), "--collection"),
        (("remove", "no-such"), "no-such"),
    ],
)
def test_bad_input_is_one_line_that_says_what_to_do(
    notes: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = clew(*arguments, cwd=notes)
    assert done.returncode == 1
    assert says in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "query", ["???", "\x07", "🎉", "the of and", "$(rm -rf x)", ".*[", '"; DROP', "\udcff keel"]
)
def test_any_character_in_a_query_is_safe(notes: Path, query: str) -> None:
    assert "results" in answer("search", query, cwd=notes)
    shown = clew("search", query, cwd=notes)
    assert re.search(r"^\d+ results? in \d+ ms", shown.stdout, re.M) and shown.returncode == 0


def test_a_query_of_100_kilobytes_is_answered_and_the_trace_says_it_was_cut(notes: Path) -> None:
    found = answer("search", "keel bolts torque " * 5600, cwd=notes)
    assert found["results"] and found["trace"]["truncated"]


def test_outside_any_store_the_error_says_what_to_run(tmp_path: Path) -> None:
    done = clew("search", "anything", cwd=tmp_path)
    assert done.returncode == 1 and "clew index" in done.stderr


def test_python_dash_m_is_the_same_command(notes: Path) -> None:
    done = run(sys.executable, "-m", "clew", "search", "--json", "TX-4471-B", cwd=notes)
    assert json.loads(done.stdout)["results"][0]["path"] == "projects/roaster-rebuild.md"


def test_a_closed_pipe_is_no_crash(notes: Path) -> None:
    done = subprocess.run(
        f"{COMMAND} search boat | head -n 1", shell=True, cwd=notes, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr
