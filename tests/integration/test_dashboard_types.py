"""The dashboards, judged by Grafana's own types and by Prometheus's parser."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.grafana.expressions import panel_expressions, usual_variables
from deploy.grafana.generate import all_dashboards
from tests.support.monitoring_files import GRAFANA, ROOT, dashboards
from tests.support.waiting import LIMIT

CACHE = ROOT / "build" / "npm-cache"


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, timeout=LIMIT)


@pytest.fixture(scope="module")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with Grafana's types, in the versions that package-lock.json names."""
    directory = tmp_path_factory.mktemp("grafana")
    shutil.copytree(GRAFANA / "types", directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    done = run("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline", "--cache", str(CACHE), cwd=directory)
    assert done.returncode == 0, done.stderr
    yield directory


def type_errors(directory: Path, **texts: str) -> str:
    """What TypeScript says of these dashboards, given as JSON."""
    for name, text in texts.items():
        module = f'import type {{ OurDashboard }} from "./dashboard";\nexport const made: OurDashboard = {text};\n'
        (directory / f"{name}.made.ts").write_text(module)
    done = run("node", "node_modules/typescript/bin/tsc", "--project", ".", cwd=directory)
    for name in texts:
        (directory / f"{name}.made.ts").unlink()
    assert (done.returncode == 0) == (done.stdout == ""), done.stderr
    return done.stdout


def test_grafanas_types_accept_the_dashboards(typescript: Path) -> None:
    texts = {path.stem: path.read_text() for path in (GRAFANA / "dashboards").glob("*.json")}
    assert texts.keys() == all_dashboards().keys()
    assert type_errors(typescript, **texts) == ""


def test_they_refuse_what_grafana_does_not_know(typescript: Path) -> None:
    text = (GRAFANA / "dashboards" / "overview.json").read_text()
    wrong = {
        "option": text.replace('"displayMode": "list"', '"displayMode": "line"'),
        "unit": text.replace('"unit": "s"', '"unit": 5'),
        "target": text.replace('"legendFormat"', '"legend"'),
    }
    assert text not in wrong.values()
    found = type_errors(typescript, **wrong)
    assert [name for name in wrong if f"{name}.made.ts(" not in found] == []


def test_promtool_accepts_every_expression(tmp_path: Path) -> None:
    variables = usual_variables("bio")
    found = [
        {"record": f"x:{name}:{panel['id']}_{number}", "expr": expression}
        for name, made in dashboards().items()
        for panel in made["panels"]
        for number, (expression, _) in enumerate(panel_expressions(panel, variables))
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": found}]}))
    done = run("promtool", "check", "rules", "rules.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(found)} rules found" in done.stdout
