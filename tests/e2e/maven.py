"""Published jars that tests need, fetched by Maven when they are first asked for."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

FETCH_S = 300.0
FLINK = "2.3.0"

Arguments = Callable[[Path], Sequence[str]]
"""Maven's, that put jars into the folder ``jars`` of a given one."""


def fetched(name: str, arguments: Arguments) -> Path:
    """Folder with jars, kept for later tests under a name."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate-tests"
    folder = cache / name
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may come at once
        if not folder.exists():
            fetch(cache, folder, arguments)
    return folder


def fetch(cache: Path, folder: Path, arguments: Arguments) -> None:
    """Fetch the jars into a folder, whole or not at all."""
    maven = shutil.which("mvn")
    assert maven, "no Maven: it fetches published jars that these tests need (scripts/maven.sh)"
    with tempfile.TemporaryDirectory(dir=cache) as work:
        run = subprocess.run(
            [maven, "-q", "-B", *arguments(Path(work))],
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            cwd=work,
        )
        assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
        (Path(work) / "jars").rename(folder)


def dependencies_of(project: str) -> Arguments:
    """Fetches what a Maven project depends on. project: its pom.xml."""

    def arguments(work: Path) -> Sequence[str]:
        (work / "pom.xml").write_text(project)
        put = f"-DoutputDirectory={work}/jars"
        return ["dependency:copy-dependencies", put, "-DincludeScope=runtime"]

    return arguments


def flink_dashboard() -> Path:
    """The published jar of Flink's web dashboard."""
    artifact = f"-Dartifact=org.apache.flink:flink-runtime-web:{FLINK}"
    folder = fetched(
        f"flink-runtime-web-{FLINK}",
        lambda work: ["dependency:copy", artifact, f"-DoutputDirectory={work}/jars"],
    )
    return folder / f"flink-runtime-web-{FLINK}.jar"


def flink_runtime() -> list[Path]:
    """The published jars of Flink's runtime and what it needs."""
    project = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidegate</groupId><artifactId>flink-for-tests</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.flink</groupId><artifactId>flink-runtime</artifactId>
      <version>{FLINK}</version>
      <exclusions>
        <exclusion><groupId>org.apache.flink</groupId><artifactId>flink-rpc-akka-loader</artifactId></exclusion>
        <exclusion><groupId>org.apache.flink</groupId><artifactId>flink-hadoop-fs</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
"""
    return sorted(fetched(f"flink-runtime-{FLINK}", dependencies_of(project)).glob("*.jar"))
