"""``tidegate serve`` in a process of its own."""

import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType

END_S = 30


class Serving:
    """Serves the jobs of a folder at ``url``. Use it in a ``with`` statement."""

    def __init__(self, checkpoints: Path, **settings: object) -> None:
        given = [f"-D{key}={value}" for key, value in settings.items()]
        self._command = [
            *(sys.executable, "-m", "tidegate", "serve", "--port", "0"),
            *("-d", str(checkpoints), *given),
        ]
        self.url = ""
        self.login = ""

    def __enter__(self) -> "Serving":
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        told = self._process.stderr.readline()
        found = re.search(r"at (\S+);", told)
        if found is None:
            self._process.kill()
            raise AssertionError(told + self._process.communicate()[1])
        self.url = found[1]
        if any("token-file" in each for each in self._command):
            self.login = self._process.stderr.readline().split()[-1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.terminate()
        _, told = self._process.communicate(timeout=END_S)
        assert self._process.returncode == 0 or error is not None, told
