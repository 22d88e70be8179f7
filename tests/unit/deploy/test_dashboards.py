"""The dashboards in deploy/grafana are those that the script makes, and show every metric."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from deploy.grafana.expressions import panel_expressions, usual_variables
from deploy.grafana.generate import DIRECTORY, all_dashboards, file_text
from tests.support.full_metrics import full_metrics, series_names
from tests.support.monitoring_files import GRAFANA, ROOT, dashboards, metrics_in, recorded_in, rules

DASHBOARDS = dashboards()


def expressions(dashboard: dict[str, Any]) -> list[str]:
    variables = usual_variables("bio")
    return [text for panel in dashboard["panels"] for text, _ in panel_expressions(panel, variables)]


def test_the_files_are_current() -> None:
    made = {name: file_text(dashboard) for name, dashboard in all_dashboards().items()}
    found = {path.stem: path.read_text() for path in DIRECTORY.iterdir()}
    assert found == made, "run: python3 -m deploy.grafana.generate"


def test_every_metric_is_on_some_dashboard(tmp_path: Path) -> None:
    shown = {name for made in DASHBOARDS.values() for text in expressions(made) for name in metrics_in(text)}
    recorded = {rule["record"]: metrics_in(rule["expr"]) for rule in rules("recording.yml")}
    for made in DASHBOARDS.values():
        shown |= {name for text in expressions(made) for record in recorded_in(text) for name in recorded[record]}
    families = {
        family.name: {sample.name for sample in family.samples}
        for family in text_string_to_metric_families(full_metrics(tmp_path).text())
        if not family.name.endswith("_created")
    }
    assert len(families) > 40
    assert [name for name, series in families.items() if not shown & series] == []
    assert shown <= series_names(full_metrics(tmp_path)), "a panel asks for what there is not"


def test_every_metric_is_in_the_documentation(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    families = text_string_to_metric_families(full_metrics(tmp_path).text())
    named = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    named = {name for name in named if name.startswith("omfs_") and not name.endswith("_created")}
    assert {name for name in named if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_panels_fill_the_grid_and_have_titles_of_their_own(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        fields = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & fields and max(x for x, _ in fields) < 24, panel["title"]
        taken |= fields
    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)
    assert len({made["uid"] for made in DASHBOARDS.values()}) == len(DASHBOARDS)


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_no_variable_is_left_without_a_value(name: str) -> None:
    assert [text for text in expressions(DASHBOARDS[name]) if "$" in text] == []


def test_the_types_are_those_of_the_grafana_in_the_compose_file() -> None:
    image = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]["image"]
    packages = json.loads((GRAFANA / "types" / "package.json").read_text())["dependencies"]
    assert image == f"grafana/grafana:{packages['@grafana/schema']}"


def test_the_data_source_is_that_of_the_compose_file() -> None:
    sources = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert [(source["type"], source["isDefault"]) for source in sources] == [("prometheus", True)]
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "omfs.yml").read_text())["providers"]
    assert provider["type"] == "file" and provider["options"]["path"] == "/var/lib/grafana/dashboards"
