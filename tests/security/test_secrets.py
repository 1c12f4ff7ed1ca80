"""A key goes to the endpoint it was set for and nowhere else, and is shown nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
from clew.cli import run
from clew.config import load
from clew.errors import ClewError, ConfigError, ModelError
from clew.models.chat import load_llm
from clew.serve.stores import ServedStores
from clew.serve.upkeep import _list_stores
from clew.trust import find_origin, trust
from endpoint import Endpoint, Handler, Reply, open_embedder, status
from servers import answering

KEY = "sk-keel-bolts-90"


@pytest.fixture
def elsewhere() -> Iterator[Endpoint]:
    with answering(Endpoint()) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody's, which the user trusts, and whose settings name an endpoint."""
    monkeypatch.delenv("CLEW_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    place = tmp_path / "theirs"
    place.mkdir()
    (place / "note.md").write_text("The keel bolts are torqued to 90 Nm.")
    settings = (
        f'model = "openai:m"\nmodel_url = "{endpoint.url}"\nllm = "m"\nllm_url = "{endpoint.url}"\n'
    )
    (place / "clew.toml").write_text(settings)
    trust(place, content=settings.encode())
    return place


def set_own(text: str) -> None:
    file = Path(os.environ["XDG_CONFIG_HOME"], "clew", "clew.toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def ask(folder: Path) -> None:
    """Embed and chat as the settings say."""
    with clew.open(folder) as engine:
        engine.index()
        engine.search("keel")
        chat = load_llm(engine.config)
        assert chat is not None
        chat.complete("s", "p", seconds=5)


def move(to: str, code: int = 307) -> Reply:
    return lambda handler, body: handler.send(code, b"{}", Location=to)


def test_a_trusted_folder_gets_no_key_for_the_endpoint_that_it_names(
    folder: Path, endpoint: Endpoint
) -> None:
    ask(folder)
    assert len(endpoint.requests) >= 3
    assert set(endpoint.keys) == {"Bearer none"}
    assert KEY not in str(endpoint.headers)


@pytest.mark.parametrize(
    "way", ["keys", "keys in the environment", "own", "environment", "base", "argument"]
)
def test_the_users_own_configuration_binds_a_key(
    way: str, folder: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "keys":
        set_own(f'[keys]\n"{find_origin(endpoint.url)}" = "OTHER_KEY"')
        monkeypatch.setenv("OTHER_KEY", "other-key")
    elif way == "keys in the environment":
        monkeypatch.setenv("CLEW_KEYS", f"{find_origin(endpoint.url)}=OPENAI_API_KEY, a.org=X")
    elif way == "own":
        set_own(f'model_url = "{endpoint.url}"')
    elif way == "environment":
        monkeypatch.setenv("CLEW_MODEL_URL", endpoint.url)
    elif way == "base":
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    config = load(folder, {"model_url": endpoint.url} if way == "argument" else {})
    chat = load_llm(config)
    assert chat is not None
    chat.complete("s", "p", seconds=5)
    assert endpoint.keys == ["Bearer other-key" if way == "keys" else f"Bearer {KEY}"]


def test_what_to_write_is_said_where_a_key_is_missed(folder: Path, endpoint: Endpoint) -> None:
    endpoint.refuses = lambda body: status(401)
    config = load(folder)
    chat = load_llm(config)
    assert chat is not None
    with pytest.raises(ModelError) as raised:
        chat.complete("s", "p", seconds=5)
    line = f'"{find_origin(endpoint.url)}" = "OPENAI_API_KEY"'
    assert line in str(raised.value)
    assert str(Path(os.environ["XDG_CONFIG_HOME"], "clew", "clew.toml")) in str(raised.value)
    set_own(f"[keys]\n{line}")
    endpoint.refuses = lambda body: None
    ask(folder)
    assert endpoint.keys[-1] == f"Bearer {KEY}"


def test_a_folder_cannot_say_where_keys_go(folder: Path) -> None:
    (folder / "clew.toml").write_text('[keys]\n"127.0.0.1:9" = "OPENAI_API_KEY"')
    trust(folder, content=(folder / "clew.toml").read_bytes())
    with pytest.raises(ConfigError, match="your own file only"):
        clew.open(folder)


def test_a_key_in_the_place_of_its_variable_is_not_repeated(folder: Path) -> None:
    set_own(f'[keys]\n"127.0.0.1:9" = "{KEY}"')
    with pytest.raises(ConfigError, match="environment variable") as raised:
        clew.open(folder)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "address",
    ["https://api.openai.com@{}", "http://api.openai.com", "https://api.openai.com.{}",
     "https://api.openai.com:444", "https://api.openai.com%2f@{}", "{}"],
)  # fmt: skip
def test_an_address_that_looks_like_the_providers_is_another(address: str, folder: Path) -> None:
    from clew.models.providers import NO_KEY, find_key

    url = address.format("127.0.0.1:9/v1")
    (folder / "clew.toml").write_text(f'llm_url = "{url}"')
    trust(folder, content=(folder / "clew.toml").read_bytes())
    assert find_key("openai", url, load(folder).keys) == NO_KEY


def test_the_provider_itself_is_told_its_key(folder: Path) -> None:
    from clew.models.providers import find_key

    url = "https://API.openai.com:443/v1/"
    (folder / "clew.toml").write_text(f'llm_url = "{url}"')
    trust(folder, content=(folder / "clew.toml").read_bytes())
    assert find_key("openai", url, load(folder).keys) == KEY


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("target", ["{}/embeddings", "file:///etc/passwd", "//[", ""])
def test_no_redirect_leads_a_key_or_a_text_to_another_host(
    code: int, target: str, folder: Path, endpoint: Endpoint, elsewhere: Endpoint
) -> None:
    to = target.format(elsewhere.url)
    endpoint.refuses = lambda body: move(to, code)
    embedder = open_embedder("openai:m", base_url=endpoint.url, retries=0, timeout=5)
    with pytest.raises(ModelError):
        embedder.embed_query("keel")
    assert elsewhere.requests == []


def test_no_redirect_leads_geminis_key_away(
    folder: Path, endpoint: Endpoint, elsewhere: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", endpoint.url.removesuffix("/v1"))
    endpoint.refuses = lambda body: move(f"{elsewhere.url}/models/m:batchEmbedContents")
    with pytest.raises(ModelError, match=r"on to .*set model_url"):
        open_embedder("gemini:gemini-embedding-001", retries=0).embed_query("keel")
    assert endpoint.headers[0]["x-goog-api-key"] == KEY
    assert elsewhere.requests == []


def test_a_redirect_on_the_same_host_is_followed_but_not_for_ever(
    folder: Path, endpoint: Endpoint
) -> None:
    embedder = open_embedder("openai:m", base_url=endpoint.url, retries=0)
    endpoint.script = [move("/v1/embeddings")]
    assert embedder.embed_query("keel").size == 4
    assert endpoint.keys == [f"Bearer {KEY}"] * 2
    endpoint.refuses = lambda body: move("/v1/embeddings")
    with pytest.raises(ModelError):
        embedder.embed_query("bolts")


def test_a_key_is_shown_and_kept_nowhere(
    folder: Path, endpoint: Endpoint, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where the endpoint says it back, in an answer and in an error."""
    set_own(f'[keys]\n"{find_origin(endpoint.url)}" = "OPENAI_API_KEY"')

    def echo(handler: Handler, body: dict) -> None:
        said = f"You sent {handler.headers['Authorization']}"
        if "messages" in body:
            handler.server.words = said
            from endpoint import chat

            chat(handler, body)
        else:
            status(400, message=said)(handler, body)

    endpoint.refuses = lambda body: echo if "messages" in body else None
    assert run(["index", str(folder)]) == 0
    assert load_llm(load(folder)).complete("s", "p", seconds=5) == "You sent Bearer …"  # type: ignore[union-attr]
    endpoint.refuses = lambda body: echo
    where = ["-C", str(folder)]
    for command in (
        ["index", str(folder), "--force"],
        ["search", "anchor", "--explain", *where],
        ["search", "anchor", "--json", *where],
        ["search", "--agentic", "anchor and keel", "--json", *where],
        ["config", *where],
        ["config", "--json", *where],
        ["status", "--json", *where],
        ["doctor", "--json", *where],
        ["sources", *where],
        ["trust", "--json"],
    ):
        assert run(command) in (0, 1)
    assert f"Bearer {KEY}" in endpoint.keys
    shown = capfd.readouterr()
    assert KEY not in shown.out + shown.err
    kept = [
        file for file in tmp_path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()
    ]
    assert kept == []


def test_local_endpoints_need_no_key(
    folder: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    ask(folder)
    assert endpoint.requests


PASSWORD = "hunter2"
ADDRESSES = [
    f"http://user:{PASSWORD}@127.0.0.1:1/v1",
    f"user:{PASSWORD}@127.0.0.1:1/v1",
    f"http://user:p/a@{PASSWORD}@127.0.0.1:1/v1",
    f"http://user:{PASSWORD}/a@127.0.0.1:1/v1",
    *(
        f"http://127.0.0.1:1/v1?version=1&{name}={PASSWORD}"
        for name in ("key", "api_key", "api-key", "token", "access_token", "password")
    ),
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_password_in_an_address_is_not_shown(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CLEW_MODEL", "openai:m@512")
    monkeypatch.setenv("CLEW_MODEL_URL", address)
    monkeypatch.setenv("CLEW_LLM_URL", address)
    for command in (["config", "--json"], ["config", "model_url"], ["config", "llm_url", "--json"]):
        assert run([*command, "-C", str(tmp_path)]) == 0
    with pytest.raises(ModelError) as raised:
        open_embedder("openai:m", base_url=address, retries=0, timeout=5).embed_query("keel")
    chat = load_llm(load(tmp_path))
    assert chat is not None
    with pytest.raises(ModelError) as other:
        chat.complete("s", "p", seconds=5)
    shown = capfd.readouterr()
    assert '"openai:m@512"' in shown.out
    assert PASSWORD not in f"{shown.out} {shown.err} {raised.value} {other.value}"


STORES = [
    f"postgresql://user:{PASSWORD}@127.0.0.1:1/db",
    f"postgresql://user:{PASSWORD}@127.0.0.1:port/db",
    f"postgresql://user:p@{PASSWORD}@127.0.0.1:1/db",
    f"postgresql://user:%zz{PASSWORD}@127.0.0.1:1/db",
    f"postgresql://127.0.0.1:1/db?user=user&password={PASSWORD}",
    f"postgres://user:{PASSWORD}@127.0.0.1:1/db",
    f"qdrant://user:{PASSWORD}@127.0.0.1:1/name",
    f"qdrant://user:{PASSWORD}@127.0.0.1:1/",
    f"qdrant://127.0.0.1:1/name?api_key={PASSWORD}",
    f"duckdb://user:{PASSWORD}@127.0.0.1/db",
    f"user:{PASSWORD}@127.0.0.1:1/db",
]


@pytest.mark.parametrize("address", STORES)
def test_a_password_in_the_address_of_a_store_is_not_shown(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("search keel --store", "latest --db", "migrate --to", "config store"):
        run([*command.split(), address])
    (tmp_path / "clew.toml").unlink(missing_ok=True)
    monkeypatch.setenv("CLEW_STORE", address)
    for command in ("search keel", "status --json", "config --json", "config store"):
        run(command.split())
    monkeypatch.delenv("CLEW_STORE")
    told = []
    server = f"http://{address.rpartition('//')[2]}"
    for opening in (
        lambda: clew.open(server),
        lambda: clew.open(tmp_path, store=address, model="none"),
        lambda: clew.Memory(address, model="none"),
        lambda: clew.connect(address),
        lambda: clew.connect(server, timeout=1).search("keel"),
    ):
        with pytest.raises(ClewError) as raised:
            opening()
        told.append(str(raised.value))
    shown = capfd.readouterr()
    assert PASSWORD not in f"{shown.out} {shown.err} {told}"
    assert not [entry for entry in tmp_path.rglob("*") if PASSWORD in str(entry)]


def test_a_password_in_the_address_of_a_memory_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Local(clew.Memory):
        """What a server would keep."""

        def __init__(self, *_: object, **options: object):
            super().__init__(tmp_path / "memory.db")

    address = f"postgresql://user:{PASSWORD}@127.0.0.1:1/db"
    monkeypatch.setenv("CLEW_MODEL", "openai:m@512")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("clew.cli.options.open_memory", Local)
    monkeypatch.setattr("clew.serve.stores.Memory", Local)
    (tmp_path / "in.jsonl").write_text('{"content": "x"}\n')
    for command in ("remember keel --id keel", "forget keel", f"import {tmp_path / 'in.jsonl'}"):
        assert run([*command.split(), "--db", address]) == 0
    with ServedStores() as stores:
        stores.open_memory(address)
        told = f"{_list_stores(stores)}"
        with pytest.raises(ClewError, match="named twice") as raised:
            stores.open_memory(address)
    shown = capfd.readouterr()
    assert "…@127.0.0.1" in told and "--db 'postgresql://…@127.0.0.1:1/db'" in shown.out
    assert PASSWORD not in f"{told} {raised.value} {shown.out} {shown.err}"


def test_a_login_that_an_endpoint_says_back_is_hidden(endpoint: Endpoint) -> None:
    import base64

    address = endpoint.url.replace("//", f"//user:{PASSWORD}@")
    login = base64.b64encode(f"user:{PASSWORD}".encode()).decode()

    def echo(handler: Handler, body: dict) -> None:
        assert handler.headers["Authorization"] == f"Basic {login}"
        status(400, message=f"{handler.headers['Authorization']} {PASSWORD}")(handler, body)

    endpoint.refuses = lambda body: echo
    with pytest.raises(ModelError, match="Basic …") as raised:
        open_embedder("openai:m", base_url=address, retries=0, timeout=5).embed_query("keel")
    assert login not in str(raised.value)
    assert PASSWORD not in str(raised.value)
    endpoint.refuses = lambda body: move(f"http://127.0.0.1:9/{login}")
    with pytest.raises(ModelError, match="on to") as raised:
        open_embedder("openai:m", base_url=address, retries=0, timeout=5).embed_query("keel")
    assert login not in str(raised.value)


def test_settings_with_a_password_are_for_their_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "clew.toml"
    assert run(["init"]) == 0
    assert file.stat().st_mode & 0o077, "the umask of the tests leaves others nothing anyway"
    assert run(["config", "store", "qdrant://me:keel-90@127.0.0.1:6333/notes"]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
