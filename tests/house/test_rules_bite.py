"""Every rule, broken once on purpose: a rule that cannot fail is a wish."""

import textwrap

import pytest

from tests.house import imports, rust, sizes, testing, words
from tests.house.source import Source
from tests.house.test_house import SCOPES, Rule


def _file(text: str, path: str = "agentcache/made_up.py") -> Source:
    return Source(path, textwrap.dedent(text))


def _class(count: int, decorator: str = "", base: str = "object") -> str:
    members = "".join(f"    {decorator}\n    def m{n}(self): ...\n" for n in range(count))
    return f"class C({base}):\n{members}"


def _rust(text: str) -> Source:
    return Source("agentcache/_rust/core/src/made_up.rs", text)


def _manifest(text: str) -> Source:
    return Source("agentcache/_rust/core/Cargo.toml", text)


LONG = "        a();\n" * 59
DEEP = """
def f(a):
    for b in a:
        if b:
            while b:
                if a:
                    return b
"""
ELIF = """
def f(a):
    for b in a:
        if b == 1:
            return 1
        elif b == 2:
            return 2
        elif b == 3:
            while b:
                return 3
"""

BROKEN: list[tuple[Rule, Source, str]] = [
    (sizes.file_lines, _file("x = 1\n" * 401), "file 401 > 400"),
    (sizes.function_lines, _file("def f():\n" + "    x = 1\n" * 60), "f 61 > 60"),
    (sizes.nesting, _file(DEEP), "f 4 > 3"),
    (sizes.parameters, _file("def f(a, b, c, d, *, e, f, g): ..."), "f 7 > 6"),
    (sizes.methods, _file(_class(21)), "C 21 > 20"),
    (sizes.attributes, _file("class C:\n" + "".join(f"    a{n}: int\n" for n in range(16))), "C 16 > 15"),
    (
        sizes.attributes,
        _file("class C:\n    def f(self):\n" + "".join(f"        self.a{n} = {n}\n" for n in range(16))),
        "C 16 > 15",
    ),
    (sizes.required_methods, _file(_class(9, base="Protocol[int]")), "C 9 > 8"),
    (sizes.required_methods, _file(_class(9, "@abc.abstractmethod", "ABC")), "C 9 > 8"),
    (sizes.none_tests, _file("a is None\nb is not None\nc is None\n"), "file 3 > 2"),
    (imports.late_imports, _file("def f():\n    from agentcache import errors\n"), "f line 2"),
    (imports.late_imports, _file("importlib.import_module('torch')"), "import_module line 1"),
    (words.empty_names, _file("x = 1", "agentcache/utils.py"), "utils"),
    (words.empty_names, _file("class PoolManager: ..."), "PoolManager line 1"),
    (words.empty_names, _file("def f(page_idx): ..."), "page_idx line 1"),
    (words.empty_names, _file("for tmp in x: ..."), "tmp line 1"),
    (words.empty_names, _file("self.hit_ct = 1"), "hit_ct line 1"),
    (words.machine_words, _file("see https://" + "packages.invalid/simple"), "packages.invalid line 1"),
    (words.machine_words, _file("pip install --extra-" + "index-url x"), "--extra-" + "index-url line 1"),
    (words.machine_words, _file("open('/work" + "/main/x')"), "/work" + "/main line 1"),
    (words.machine_words, _file("data = '.." + "/shared/data'"), "shared folder line 1"),
    (testing.unsound, _file("pytest.skip('later')"), "skip line 1 (use a marker of pyproject.toml)"),
    (
        testing.unsound,
        _file("@pytest.mark.xfail\ndef f(): ..."),
        "xfail line 1 (use a marker of pyproject.toml)",
    ),
    (testing.unsound, _file("time.sleep(0)"), "time.sleep line 1 (wait for an event)"),
    (testing.unsound, _file("await asyncio.sleep(0.1)"), "asyncio.sleep line 1 (wait for an event)"),
    (testing.unsound, _file("from unittest import mock"), "import line 1"),
    (
        rust.function_lines,
        _rust(f"impl T {{\n    pub(crate) fn f(\n{LONG}    }}\n\n    fn g() {{}}\n}}\n"),
        "f 61 > 60",
    ),
    (rust.function_lines, _rust(f"const fn f() {{\n{LONG}}}\n"), "f 61 > 60"),
    (rust.uses_unsafe, _rust("let a = 1;\nunsafe { b() }\n"), "line 2"),
    (
        rust.unsafe_without_reason,
        _rust("// SAFETY: old\n\n\n\nunsafe impl Send for A {}\n"),
        "no SAFETY: line 5",
    ),
    (
        rust.allows_unsafe,
        _rust("// #![forbid(unsafe_code)]\n#![deny(unsafe_code)]\n"),
        "no #![forbid(unsafe_code)]",
    ),
    (rust.loose_pins, _manifest("[dependencies]\nsha2 = '0.11.0'\n"), "sha2"),
    (rust.loose_pins, _manifest("[dev-dependencies]\nproptest = { version = '=1.9' }\n"), "proptest"),
    (rust.loose_pins, _manifest("[target.'cfg(unix)'.dependencies]\nlibc = '*'\n"), "libc"),
    (rust.loose_pins, _manifest("[workspace.dependencies]\nlibc = { git = 'x' }\n"), "libc"),
]

KEPT: list[tuple[Rule, Source]] = [
    (sizes.nesting, _file(ELIF)),
    (sizes.attributes, _file("class Kind(StrEnum):\n" + "".join(f"    A{n}: str = ''\n" for n in range(30)))),
    (sizes.none_tests, _file("a is None\nb is None\n")),
    (words.empty_names, _file("def f(tmp_path, common_prefix, object_id): ...")),
    (words.machine_words, _file("curl http://127.0.0.1:8100/health and https://www.example.com/work/main")),
    (testing.unsound, _file("await asyncio.sleep(0)")),
    (rust.function_lines, _rust(f"trait T {{\n    fn f(&self);\n    fn g() {{}}\n}}\n{LONG}")),
    (rust.uses_unsafe, _rust('#![forbid(unsafe_code)]\nlet a = "unsafe"; // unsafe\n')),
    (rust.unsafe_without_reason, _rust("// SAFETY: it lives\nlet a =\n    unsafe { *b };\n")),
    (rust.unsafe_without_reason, _rust('type A = unsafe extern "C" fn();\nunsafe extern "C" fn a() {}\n')),
    (rust.allows_unsafe, _rust("//! Core.\n#![forbid(unsafe_code)]\n")),
    (rust.loose_pins, _manifest("[dependencies]\na = '=1.2.3'\nb = { path = '../b' }\nc.workspace = true\n")),
]


@pytest.mark.parametrize(("rule", "source", "said"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_rule_bites(rule: Rule, source: Source, said: str) -> None:
    breaches = list(rule(source))
    assert [breach.rsplit("::", 1)[1] for breach in breaches] == [said]


@pytest.mark.parametrize(("rule", "source"), KEPT, ids=lambda value: getattr(value, "__name__", ""))
def test_rule_lets_good_code_pass(rule: Rule, source: Source) -> None:
    assert list(rule(source)) == []


def test_every_rule_is_broken_once() -> None:
    assert {rule for rule, _ in SCOPES} == {rule for rule, _, _ in BROKEN}


def test_a_cycle_for_typing_alone_is_a_cycle() -> None:
    first = _file("if TYPE_CHECKING:\n    from agentcache.b import B\n", "agentcache/a.py")
    second = _file("from . import a\n", "agentcache/b.py")
    assert list(imports.cycles([first, second])) == [
        "import cycle: agentcache.a -> agentcache.b -> agentcache.a"
    ]
    assert list(imports.cycles([first, _file("", "agentcache/b.py")])) == []


def test_a_kind_counts_only_where_it_is_named() -> None:
    assert testing.kinds_named(_file("assert error.kind is Kind.IN_USE  # not Kind.OVER_POOL")) == {"IN_USE"}
