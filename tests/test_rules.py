"""Rules of the project that are not about who imports whom (those are import contracts in pyproject.toml)."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import pathlib
import pkgutil
import re
import subprocess
import sys

import grimp
import pytest

from tests.support.processes import ROOT, clean_environment
from tests.support.words import trees

PACKAGES = ("broker", "config", "coordinator", "protocol", "replication", "spark_jobs", "storage")
TOP_LEVEL = {
    *PACKAGES,
    *(
        "tests",
        "README.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "docs",
        "CHANGELOG.md",
        "Makefile",
        "__init__.py",
        "hatch_build.py",
        "pyproject.toml",
        ".ci",
        ".gitignore",
    ),
}
MAX_LINES = 600
MAX_MODULES = 15
"""In one folder."""
FOLDERS_OF_MANY = {
    "broker/cli": "one module per command",
    "broker/handlers": "one per API",
    "protocol/schema": "one per API",
}
MAX_SUBJECT_CHARACTERS = 72
SUBJECTS_SINCE = "2026-11-29T11:30:00Z"
"""Longer subjects of commits before stay as they are."""
KNOWN_CIRCLES: dict[frozenset[str], str] = {}
"""Import circles that are left, each with its reason. A circle leaves this list with the change that removes it."""
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def git(*words: str) -> str:
    """Return the output of a command of git."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return done.stdout


def tracked_files() -> list[pathlib.Path]:
    """Return the files that git tracks; the working folder may contain data and caches besides."""
    return [ROOT / name for name in git("ls-files", "-z").split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("package", PACKAGES)
def test_package_inits_hold_one_docstring_and_no_code(package: str) -> None:
    """Imports there would run for every module of the package: start-up time and memory."""
    for path in (ROOT / package).rglob("__init__.py"):
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        assert len(tree.body) == 1, f"{path} holds code"


def test_no_file_is_too_long_to_be_one_idea() -> None:
    tests = sorted((ROOT / "tests").rglob("*.py"))
    lengths = {path: len(path.read_text().splitlines()) for path in [*SOURCES, *tests]}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_every_module_says_what_it_is() -> None:
    assert [path for path in SOURCES if not path.read_text().startswith('"""')] == []


def test_nobody_waits_in_a_way_that_swallows_a_cancellation() -> None:
    """In Python 3.11 asyncio.wait_for does so if its future is done in the same turn: a cancelled task with a loop then
    never ends. asyncio.timeout does not."""
    found = [path for path in SOURCES if re.search(r"asyncio\.wait_for\b|import.*\bwait_for\b", path.read_text())]
    assert found == []


def test_top_level_holds_only_what_the_readme_names() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked_files()} <= TOP_LEVEL


def test_no_path_of_somebodys_machine() -> None:
    pattern = re.compile(r"(?<![\w.$}{-])/(?:home|root|Users|work)/\w")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked_files()
        if path.suffix in {".py", ".md", ".toml", ".properties", ".xml", ""}
        and path.name != pathlib.Path(__file__).name
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []


def test_subjects_of_commits_are_short() -> None:
    """Not those of merges, which git writes."""
    subjects = git("log", f"--since={SUBJECTS_SINCE}", "--no-merges", "--format=%s").splitlines()
    assert [one for one in subjects if len(one) > MAX_SUBJECT_CHARACTERS] == []


def test_nothing_is_imported_under_a_second_name() -> None:
    """`broker.server` beside `gregor.broker.server` would be two modules with two states."""
    assert [name for name in sys.modules if name.partition(".")[0] in PACKAGES] == []


@pytest.mark.slow
def test_nothing_of_ours_is_importable_under_its_bare_name(tmp_path: pathlib.Path) -> None:
    """From another folder, with this environment's Python: an application's own `config.py` must be the only one."""
    show = "import importlib.util, sys; print([name for name in sys.argv[1:] if importlib.util.find_spec(name)])"
    command = [sys.executable, "-P", "-c", show, *PACKAGES, "gregor"]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "['gregor']\n"


def test_no_spark_job_is_named_like_a_module_that_it_may_import() -> None:
    """spark-submit puts the folder of the job at the head of the path: `copy.py` there would hide Python's own."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    pyspark = {module.name for module in pkgutil.iter_modules(spec.submodule_search_locations)}
    taken = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), *pyspark}
    jobs = {path.stem for path in (ROOT / "spark_jobs" / "jobs").glob("*.py")} - {"__init__"}
    assert jobs
    assert jobs & taken == set()


def test_handlers_are_named_like_their_schemas() -> None:
    """`k00_produce.py` holds the schema in protocol/schema and the behaviour in broker/handlers."""
    schemas = {path.name for path in (ROOT / "protocol" / "schema").glob("k[0-9]*.py")}
    handlers = {path.name for path in (ROOT / "broker" / "handlers").glob("k[0-9]*.py")}
    assert handlers
    assert handlers <= schemas


def test_only_test_modules_are_named_test() -> None:
    """A test file that pytest does not collect seems to be a test and checks nothing."""
    odd = [
        path
        for path in (ROOT / "tests").rglob("*.py")
        if not path.name.startswith("test_") and re.search(r"^(async )?def test_", path.read_text(), re.MULTILINE)
    ]
    assert odd == []


def _room(module: str) -> str:
    return module.rpartition(".")[0]


def _imports() -> dict[str, set[str]]:
    """Return the imports of each module, also those inside functions and for type checkers. Between modules of one room
    imports for type checkers do not count: they cost nothing, and the two modules are read together."""
    every = grimp.build_graph("gregor", exclude_type_checking_imports=False, cache_dir=None)
    at_run_time = grimp.build_graph("gregor", exclude_type_checking_imports=True, cache_dir=None)
    return {
        module: {
            other
            for other in every.find_modules_directly_imported_by(module)
            if _room(other) != _room(module) or other in at_run_time.find_modules_directly_imported_by(module)
        }
        for module in every.modules
    }


def _circles(imports: dict[str, set[str]]) -> set[frozenset[str]]:
    """The groups of modules that reach each other."""
    reached: dict[str, set[str]] = {}
    for module in imports:
        found: set[str] = set()
        left = list(imports[module])
        while left:
            other = left.pop()
            if other not in found:
                found.add(other)
                left += imports[other]
        reached[module] = found
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in imports
        if module in reached[module]
    }


def test_modules_that_import_each_other_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set(), "f": {"f"}}
    assert _circles(imports) == {frozenset("abc"), frozenset("f")}


def test_no_modules_import_each_other() -> None:
    assert _circles(_imports()) == set(KNOWN_CIRCLES)


def test_no_folder_holds_more_modules_than_can_be_taken_in() -> None:
    folders = {path.parent for path in SOURCES} - {ROOT / name for name in FOLDERS_OF_MANY}
    counts = {str(one.relative_to(ROOT)): len([*one.glob("*.py")]) - 1 for one in folders}
    assert {name: count for name, count in counts.items() if count > MAX_MODULES} == {}


def _set_from_outside(tree: ast.Module) -> list[str]:
    """Functions that are put into the attributes of other objects, and attributes named like events that are set."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if not isinstance(target, ast.Attribute) or ast.unparse(target.value) in ("self", "cls"):
                continue
            if target.attr.startswith("on_") or isinstance(node.value, ast.Lambda):
                found.append(ast.unparse(node))
    return found


def test_what_is_set_from_outside_is_found() -> None:
    tree = ast.parse("self.on_a = f\na.b.on_c = f\na.b = lambda: 1\na.b = 1\n")
    assert _set_from_outside(tree) == ["a.b.on_c = f", "a.b = lambda: 1"]


@pytest.mark.slow
def test_callbacks_are_given_when_an_object_is_made() -> None:
    """One that is set later is missing until then, and a reader of the class does not see who calls whom."""
    found = {str(path.relative_to(ROOT)): _set_from_outside(ast.parse(path.read_text())) for path in SOURCES}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_jars_are_fetched_before_the_tests_that_need_them() -> None:
    """Else the time of a test includes a download, which may last longer than the test may."""
    fetching = [path for path in (ROOT / "tests/support").glob("*.py") if "copy-dependencies" in path.read_text()]
    runs = (ROOT / "Makefile").read_text() + (ROOT / ".ci/run").read_text()
    assert fetching
    for path in fetching:
        assert '__name__ == "__main__"' in path.read_text(), path
        assert f"python -m tests.support.{path.stem}\n" in runs, path


def test_every_module_postpones_its_annotations() -> None:
    """One style: names in annotations need no quotes, and cost nothing at the start."""

    def has_annotations(tree: ast.AST) -> bool:
        return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in ast.walk(tree))

    sources = {path: path.read_text() for path in SOURCES}
    without = [path for path, text in sources.items() if "from __future__ import annotations" not in text]
    assert [path for path in without if has_annotations(ast.parse(sources[path]))] == []


def test_loggers_of_modules_have_one_name() -> None:
    """`_log`; `gregor.broker.log.logger` is the one of the daemon, which many modules use."""
    own = re.compile(r"^(\w+) = logging\.getLogger\(__name__\)", re.MULTILINE)
    found = {path: own.findall(path.read_text()) for path in SOURCES if path != ROOT / "broker" / "log.py"}
    assert {path: names for path, names in found.items() if set(names) - {"_log"}} == {}


def test_notes_of_attributes_are_docstrings() -> None:
    """One style: below the attribute, as for classes and functions, and not `#:` above it."""
    tests = sorted((ROOT / "tests").rglob("*.py"))
    old = re.compile(r"^\s*#:", re.MULTILINE)
    assert [path for path in [*SOURCES, *tests] if old.search(path.read_text())] == []


CALLS_ON_THREADS = {
    "broker/cli/cluster.py _watch": "a command: queries brokers with a blocking client",
    "broker/jobs/turns.py run_rest": "work in steps needs the future of the call (docs/architecture/decisions.md)",
    "broker/launch/supervisor.py _probe": "a command: connects to a starting ZooKeeper with a blocking socket",
    "broker/net/connections.py _limit_of": "resolves host names",
    "broker/session_watcher/sessions.py close_predecessor": "speaks to ZooKeeper with a blocking socket",
    "replication/channels/peer.py _authenticate": "computes hashes of a password",
    "replication/controller/loop.py _decide": "computes a decision about many partitions",
    "replication/store/zookeeper.py _connect": "waits for the end of kazoo's threads",
    "replication/store/zookeeper.py _probe": "waits for the end of kazoo's threads",
    "replication/store/zookeeper.py close": "waits for the end of kazoo's threads",
}
"""The functions that call others on a thread past `gregor.broker.jobs.background`, whose way, by aiofiles, is that of
file work; each with its reason."""


def _calls_on_threads(tree: ast.AST, function: str = "") -> set[str]:
    """Return the names of the innermost functions around `run_in_executor` and `to_thread`."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        name = getattr(node, "attr", getattr(node, "id", None))
        if name in ("run_in_executor", "to_thread"):
            found.add(function)
        found |= _calls_on_threads(node, inner)
    return found


def test_calls_on_threads_are_found() -> None:
    tree = ast.parse(
        "class A:\n    async def f(self):\n        await loop().run_in_executor(None, g)\n"
        "def outer():\n    def inner():\n        return asyncio.to_thread(g)\n    return inner\nto_thread(g)\n"
    )
    assert _calls_on_threads(tree) == {"f", "inner", ""}


def test_file_work_reaches_threads_one_way() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in SOURCES}
    found = {
        f"{name} {function}"
        for name, text in texts.items()
        if "run_in_executor" in text or "to_thread" in text
        for function in _calls_on_threads(ast.parse(text))
    }
    assert found == CALLS_ON_THREADS.keys()


LOG_CALLS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
A_LINE = "the line is a whole text that names the thing: "
LINES_OF_OTHERS = {
    "broker/authorization/authorizer.py audit_log.debug('%s', audit_line(call, operation, resource, name, decision))": (
        "Apache Kafka's form of this line, in one function"
    ),
    "broker/authorization/authorizer.py audit_log.info('%s', audit_line(call, operation, resource, name, decision))": (
        "Apache Kafka's form of this line, in one function"
    ),
    "broker/authorization/authorizer.py "
    "audit_log.log(level, '%s', audit_line(call, operation, resource, ANY_NAME, decision))": (
        "Apache Kafka's form of this line, in one function"
    ),
    "broker/cli/start_brokers.py logger.error('%s', error)": A_LINE + "StartFailed",
    "broker/cli/start_brokers.py logger.info('%s', status)": A_LINE + "a service manager gets it as well",
    "broker/cli/start_brokers.py logger.warning('%s', line)": A_LINE + "start_brokers.left_out",
    "broker/cli/start_brokers.py logger.warning('%s', warning)": A_LINE + "BrokerConfig.warnings",
    "broker/history/writer.py logger.info('%s', line(group_id, value))": A_LINE + "`gregor groups` prints it as well",
    "broker/jobs/loop_lag.py _log.debug('%s', _described(lag))": A_LINE + "one text at two levels",
    "broker/jobs/loop_lag.py _log.warning('%s', _described(lag))": A_LINE + "one text at two levels",
    "broker/jobs/reload.py "
    "logger.log(logging.INFO if one.applied else logging.WARNING, '%s: %s', config.path, one.line)": (
        A_LINE + "config.reload.Reloaded"
    ),
    "broker/server.py logger.error('%s', error)": A_LINE + "StartError, BindError or ConfigError",
    "broker/server.py logger.info('%s', line)": A_LINE + "startup_report and seen_by_clients",
    "broker/server.py logger.info('%s', note)": A_LINE + "BrokerConfig.notes",
    "broker/server.py logger.info('%s', program_line())": A_LINE + "startup_report",
    "broker/server.py logger.warning('%s', line)": A_LINE + "leads_astray",
    "broker/server.py logger.warning('%s', warning)": A_LINE + "BrokerConfig.warnings",
    "coordinator/group/migration/conversion.py _log.warning('%s', text)": A_LINE + "the client gets it as well",
    "replication/partition/alter_partition.py "
    "_log.log(logging.INFO if defect is None else logging.ERROR, '%s', text, exc_info=defect)": (
        A_LINE + "compared with the last one"
    ),
    "spark_jobs/sink/foreach_batch.py _log.warning('%s', line)": A_LINE + "SinkOptions.warnings",
    "spark_jobs/source/datasource.py _log.warning('%s', line)": A_LINE + "SourceOptions.warnings",
}
"""Calls of loggers without a text of their own, each with its reason."""


def _lines_without_text(tree: ast.AST) -> list[str]:
    """Return the calls of loggers whose format is no literal, or has no word beside its placeholders."""

    def has_text(call: ast.Call, index: int) -> bool:
        text = call.args[index] if index < len(call.args) else None
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            return False
        return re.search("[A-Za-z]{3}", re.sub(r"%[-#0 +]*[\d.]*[a-z]", "", text.value)) is not None

    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOG_CALLS
        and re.search(r"(?:^|[._])(?:log|logger|audit)$", ast.unparse(node.func.value))
        and not has_text(node, 1 if node.func.attr == "log" else 0)
    ]


def test_lines_without_text_are_found() -> None:
    tree = ast.parse(
        "_log.error('%s-%d: %s', a, b, c)\nlogger.log(level, text)\nself.audit_log.info('%-5.1f', a)\n"
        "_log.error('%s is full', a)\nlogger.log(level, 'stopped')\nmessage.error()\n"
    )
    assert _lines_without_text(tree) == [
        "_log.error('%s-%d: %s', a, b, c)",
        "logger.log(level, text)",
        "self.audit_log.info('%-5.1f', a)",
    ]


@pytest.mark.slow
def test_lines_of_the_log_have_a_text_of_their_own() -> None:
    """Else a search for the line does not find its code, and its reader does not learn what has failed."""
    found = {f"{path} {line}" for path, tree in trees() for line in _lines_without_text(tree)}
    assert found == LINES_OF_OTHERS.keys()


SECRET_COMPARING = (
    "broker/metrics/basic_authentication.py",
    "config/security/jks.py",
    "protocol/sasl/plain.py",
    "protocol/sasl/scram.py",
    "replication/entities/tokens.py",
)
"""The modules that compare what a stranger sends with a secret."""
SECURITY_FOLDERS = ("broker/security", "config/security", "protocol/sasl")
SECRET_NAMES = re.compile(
    "credential|digest|hmac|key_pem|nonce|passphrase|passw|proof|salted|secret|server_key|signature|stored_key|token|verifi"
)
COMPARED_AT_ONCE = {
    "token.token_id != name": "ids of delegation tokens, which clients send in clear",
    "values.keys() != {'salt', 'stored_key', 'server_key', 'iterations'}": "names of fields",
    "token == _END_OF_FAILURE": "a message of the protocol without a secret: it ends a refused exchange",
    "self._salted[:2] != (salt, iterations)": "in the client: salt and iterations come in clear",
    "jaas.options.get('tokenauth', '').lower() == 'true'": "a flag",
    "nonce == self._nonce": "in the client, which has sent this nonce in clear itself",
}
"""Comparisons by == and != beside such a name, each with the reason for which its time reveals nothing."""


def _secrets_compared_at_once(tree: ast.AST) -> list[str]:
    """Comparisons by == and != with a name of a secret on one side. Lengths are public."""

    def is_secret(node: ast.expr) -> bool:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("len", "_java_length"):
            return False
        return SECRET_NAMES.search(ast.unparse(node)) is not None

    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(one, ast.Eq | ast.NotEq) for one in node.ops)
        and any(map(is_secret, (node.left, *node.comparators)))
    ]


def test_secrets_compared_at_once_are_found() -> None:
    tree = ast.parse("a == self.password\nif hmac_of(a) != b: pass\nlen(nonce) == 2\na == b\nproof is None\n")
    assert _secrets_compared_at_once(tree) == ["a == self.password", "hmac_of(a) != b"]


def test_secrets_are_compared_in_constant_time() -> None:
    """The time of == reveals how many bytes of a guess are right."""
    texts = {path: path.read_text() for path in SOURCES}
    using = {str(path.relative_to(ROOT)) for path, text in texts.items() if "hmac.compare_digest(" in text}
    assert using == set(SECRET_COMPARING)
    watched = [*(path for name in SECURITY_FOLDERS for path in (ROOT / name).rglob("*.py"))]
    watched += [ROOT / name for name in SECRET_COMPARING]
    found = {line for path in watched for line in _secrets_compared_at_once(ast.parse(texts[path]))}
    assert found == COMPARED_AT_ONCE.keys()
