"""Pages of docs/reference are what the program does: docstrings, metrics, status codes.

ReferenceTest (tests/cli) holds the pages that the program writes itself, TritonConfigTest the fields of config.pbtxt.
"""

import json
import re
import subprocess
import sys
import urllib.request

import yaml

from pages import ROOT, read


def test_the_page_of_the_python_package_is_that_of_its_docstrings():
    printed = subprocess.run([sys.executable, ROOT / "tools/python_api.py"], capture_output=True, text=True, check=True)
    assert read("docs/reference/python-api.md") == printed.stdout, "`make reference` writes it"


def test_the_page_of_metrics_has_their_names_and_types(box):
    http, port = json.loads((box / "all.json").read_text())[:2]
    body = json.dumps({"model": "minilm", "input": "a histogram has entries after a request"}).encode()
    urllib.request.urlopen(f"http://127.0.0.1:{http}/v1/embeddings", data=body).close()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        served = set(re.findall(r"^# TYPE (\w+) (\w+)$", answer.read().decode(), re.MULTILINE))
    documented = set(re.findall(r"^\| `(chairlift_\w+)` \| (\w+),", read("docs/reference/metrics.md"), re.MULTILINE))
    assert len(served) > 20
    renamed = read("src/base/renamed.cc").split("kMetrics[] = {")[1].split("};")[0]
    old = set(re.findall(r'\{"(\w+)", ', renamed))  # these are served for one version, and not documented
    served = {(name, kind) for name, kind in served if name not in old}
    assert documented == served


def test_the_dashboard_and_the_alerts_ask_for_metrics_and_labels_that_exist():
    page = read("docs/reference/metrics.md")
    names = set(re.findall(r"^\| `(chairlift_\w+)` \|", page, re.MULTILINE))
    labels = set(re.findall(r"`(\w+)`", page[page.index("## Labels"):page.index("## Requests of a model")]))
    alerts = yaml.safe_load(read("deploy/prometheus/alerts.yml"))
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    panels = [panel for panel in json.loads(read("deploy/grafana/chairlift.json"))["panels"] if panel["type"] != "row"]
    queries = [rule["expr"] for rule in rules] + [one["expr"] for panel in panels for one in panel["targets"]]
    assert len(rules) >= 5 and len(queries) >= 20
    for query in queries:
        for name in re.findall(r"\bchairlift_\w+", query):
            assert name in names or re.sub(r"_bucket$", "", name) in names, query
        used = re.findall(r"(\w+)=~?\"", query) + re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", query)))
        assert set(used) <= labels | {"instance", "job"}, query
    shown = set(re.findall(r"chairlift_[a-z_]+", " ".join(queries)))
    assert {"chairlift_requests_total", "chairlift_queued_work_seconds"} <= shown


def test_the_page_of_errors_has_the_http_status_of_every_code():
    """By the two switches of the server: from a Status to a kind of error, from that to a status code."""
    kinds = (ROOT / "src/server/protocol/errors.cc").read_text(encoding="utf-8")
    codes = (ROOT / "src/server/http/handlers.cc").read_text(encoding="utf-8")
    body = codes[codes.index("int HttpStatus("):codes.index("Reply JsonReply")]
    http = {kind: status for group, status in re.findall(r"((?:case ErrorKind::k\w+:\s*)+)return (\d+);", body)
            for kind in re.findall(r"k\w+", group.replace("ErrorKind", ""))}
    status = {code: http[kind] for group, kind in
              re.findall(r"((?:case absl::StatusCode::k\w+:\s*)+)return ErrorKind::(k\w+);", kinds)
              for code in re.findall(r"StatusCode::k(\w+)", group)}
    assert len(status) >= 9
    page = read("docs/reference/errors.md")
    for code in ("Cancelled Unknown InvalidArgument DeadlineExceeded NotFound AlreadyExists PermissionDenied ResourceExhausted "
                 "FailedPrecondition Aborted OutOfRange Unimplemented Internal Unavailable DataLoss Unauthenticated").split():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", code).upper()
        assert f"| `{name}` | {status.get(code, '500')} |" in page


def test_the_page_of_errors_has_the_exception_of_every_code():
    classes = dict(re.findall(r'"([A-Z_]+)": (\w+),', read("python/chairlift/_errors.py").split("_CLASSES = {")[1].split("}")[0]))
    rows = re.findall(r"^\| `([A-Z_]+)` \| \d+ \| `(\w+)` \|", read("docs/reference/errors.md"), re.MULTILINE)
    assert len(rows) == 16
    assert {code: name for code, name in rows} == {code: classes.get(code, "Error") for code, _ in rows}
    assert set(classes) <= {code for code, _ in rows}


def test_the_page_of_errors_has_the_types_of_both_protocols():
    source = read("src/server/http/text_codec.cc")
    source = source[source.index("std::string TextError("):]
    tei = set(re.findall(r'kind = "(\w+)"', source))
    openai = set(re.findall(r'"(\w+_error)"', source))
    page = read("docs/reference/errors.md")
    for title, types in (("TEI's `error_type`", tei), ("OpenAI's `type`", openai)):
        table = page[page.index(f"| {title} |"):].split("\n\n")[0]
        assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == types


def test_the_page_of_metrics_has_every_reason():
    """The strings that the engine counts failures by."""
    statistics = read("src/engine/requests/statistics.cc")
    counted = set(re.findall(r'return "(\w+)";', statistics[statistics.index("std::string FailureReason("):]))
    for source in (ROOT / "src/engine").rglob("*.cc"):
        for call in re.findall(r"[.]Failed\((.*?)\);", source.read_text(encoding="utf-8"), re.DOTALL):
            counted |= set(re.findall(r'"(\w+)"', call))
    page = read("docs/reference/metrics.md")
    assert set(re.findall(r"^\| `(\w+)` \|", page[page.index("## Reasons"):], re.MULTILINE)[1:]) == counted


def test_the_page_of_metrics_has_the_labels_of_every_sample(box):
    """Each label that is served is one of the page's first table, and a family's own are in its row."""
    port = json.loads((box / "all.json").read_text())[1]
    page = read("docs/reference/metrics.md")
    known = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]+ \|$", page, re.MULTILINE))))
    rows = dict(re.findall(r"^\| `(chairlift_\w+)` \| (.*) \|$", page, re.MULTILINE))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        samples = re.findall(r"^(chairlift_\w+)\{(.*?)\} ", answer.read().decode(), re.MULTILINE)
    assert samples
    for name, labels in samples:
        name = name if name in rows else re.sub(r"_(bucket|sum|count)$", "", name)
        if name not in rows:
            continue  # an old name
        for label in re.findall(r'(\w+)="', labels):
            assert label in known, f"{name} has a label '{label}'"
            if label in ("outcome", "rows", "reason", "code"):
                assert f"`{label}`" in rows[name], f"{name} has a label '{label}'"
