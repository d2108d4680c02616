"""docs/reference/openapi.yaml is OpenAPI 3.1, its routes are those of the router's table, and answers fit it."""

import json
import re
import urllib.error
import urllib.request

import pytest
import yaml
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from pages import ROOT
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

SPEC = yaml.safe_load((ROOT / "docs/reference/openapi.yaml").read_text(encoding="utf-8"))


def test_it_is_valid():
    validate(SPEC)


def test_its_routes_are_those_of_the_router():
    """The table is kTable of src/server/http/router.cc: "*" stands for a model or a region, "#" for a version."""
    table = re.findall(r'Entry\{"(\w+)", "([^"]*)"', (ROOT / "src/server/http/router.cc").read_text(encoding="utf-8"))
    routes = {f"{method} /{re.sub('[*#]', '{}', path)}" for method, path in table}
    documented = {f"{method.upper()} {re.sub(r'{[^}]*}', '{}', path)}" for path, item in SPEC["paths"].items()
                  for method in item if method != "parameters"}
    assert len(routes) > 50
    assert documented == routes


def test_its_version_is_the_program_s():
    assert f"VERSION {SPEC['info']['version']}" in (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")


def schema_of(name):
    registry = Registry().with_resource("urn:spec", Resource(contents=SPEC, specification=DRAFT202012))
    return OAS31Validator({"$ref": f"urn:spec#/components/schemas/{name}"}, registry=registry)


@pytest.mark.parametrize("path, body, schema", [
    ("/v2/models/minilm", None, "Metadata"),
    ("/v2/models/NAME", None, "Metadata"),
    ("/v2/models/NAME/infer", {"id": "7", "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]},
     "InferResponse"),
])
def test_answers_fit(path, body, schema, box):
    port = json.loads((box / "all.json").read_text())[0]
    if body is not None:
        schema_of("InferRequest").validate(body)
        body = json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body) as answer:
        schema_of(schema).validate(json.load(answer))


def test_every_get_is_answered(box):
    """Each path of the HTTP port with a GET answers something other than 404 and 405."""
    ports = json.loads((box / "all.json").read_text())
    for path, item in SPEC["paths"].items():
        if "get" not in item:
            continue
        port = ports[1] if path == "/metrics" else ports[0]
        shown = path.replace("{model}", "minilm").replace("{version}", "1").replace("{region}", "r")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{shown}") as answer:
                assert answer.status == 200
        except urllib.error.HTTPError as error:
            assert "region" in path and error.code in (400, 404), f"{path}: {error.code} {error.read()}"
