"""Which files are sent to a cluster: no secrets, unless .rayignore names them."""

from zipfile import ZipFile

import pytest

from cluster.package import pack
from cluster.selection import Selection, describe_secrets

SECRETS = (
    *(".env", ".env.local", "mine/.env", "mine/server.key", "ca.pem", "id_rsa", "id_rsa.pub", "mine/id_ed25519"),
    *(".netrc", "_netrc", "a.p12", "a.pfx", "credentials.json", "credentials-prod.json", "mine/.docker/config.json"),
    *("mine/wandb/settings", "auth_token"),
)
SECRET_FOLDERS = (".aws/config", "mine/.ssh/known_hosts", ".kube/config", ".ray/slurm-7")
OTHERS = (".env.example", "config.json", "key.py", "mine/wandb/chart.py", "mine/.docker/Dockerfile", "environment.yml")


def write(folder, *names, content="x"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def sent(folder):
    return {path.relative_to(folder).as_posix() for path in Selection(folder).files} - {".gitignore", ".rayignore"}


def test_secrets_are_left_out_and_counted(tmp_path):
    work = tmp_path / "work"
    write(work, *SECRETS, *SECRET_FOLDERS, *OTHERS)
    selection = pack(work, tmp_path / "out.zip")
    assert set(ZipFile(tmp_path / "out.zip").namelist()) == set(OTHERS)
    folders = {name.rpartition("/")[0] for name in SECRET_FOLDERS}
    assert {path.relative_to(work).as_posix() for path in selection.secrets} == {*SECRETS, *folders}
    assert describe_secrets(selection.secrets, work) == (
        f"left out {len(SECRETS) + 4} entries that may hold secrets: .aws/, .env, .env.local, ...; "
        "to send one, add !/.aws/ to .rayignore"
    )


@pytest.mark.parametrize("gitignore", ["", ".env\nmine/\n.aws/\n/data/\n"])
@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("!.env", {".env", "mine/.env"}),
        ("!/.env", {".env"}),
        ("!mine/.env", {"mine/.env"}),
        ("!/.aws/", {".aws/config", ".aws/sso/cache"}),
        ("!data", {"data/table.csv"}),  # and not the secret inside
        ("!*", set()),
        ("!.e*\n!*/", set()),
        ("!.env.local", set()),
    ],
)
def test_what_a_rayignore_names_is_sent(gitignore, line, files, tmp_path):
    write(tmp_path, ".env", "mine/.env", ".aws/config", ".aws/sso/cache", "data/table.csv", "data/a.key", "mine/a.key")
    write(tmp_path, ".gitignore", content=gitignore)
    write(tmp_path, ".rayignore", content=line)
    reachable = {name for name in files if not (gitignore and name == "mine/.env")}  # as in git: its folder is left out
    assert sent(tmp_path) == reachable


def test_the_hint_works(tmp_path):
    write(tmp_path, "a/.kube/config", "a/b.py")
    hint = describe_secrets(Selection(tmp_path).secrets, tmp_path)
    write(tmp_path, ".rayignore", content=hint.partition("add ")[2].partition(" to")[0])
    assert sent(tmp_path) == {"a/.kube/config", "a/b.py"}
    assert Selection(tmp_path).secrets == []


def test_what_the_user_ignores_is_not_counted_as_a_secret(tmp_path):
    write(tmp_path, ".env", "env/.env", "env/pyvenv.cfg", "mine/data.csv")
    write(tmp_path, ".gitignore", content=".env\n")
    assert sent(tmp_path) == {"mine/data.csv"}
    assert Selection(tmp_path).secrets == []


def test_a_rayignore_below_applies_there(tmp_path):
    write(tmp_path, "mine/a.log", "other/a.log", "mine/b.log")
    write(tmp_path, ".rayignore", content="*.log\n")
    write(tmp_path, "mine/.rayignore", content="!a.log\n")
    assert sent(tmp_path) == {"mine/.rayignore", "mine/a.log"}
