"""A client of a job's REST interface, as somebody's own would be."""

import json
import urllib.error
import urllib.request
from typing import Any

from tests.e2e.runtimes import END_S
from tests.e2e.watch import until
from tidegate import JobClient

SERVED = {"rest.port": "0", "tidegate.rest.savepoint-dirs": "*"}

DAY_MS = 24 * 3_600_000
"""An interval of checkpoints at which no test sees one: the first comes at random within it."""


class Rest:
    """Asks the REST interface of one job.

    job: its id, where several are served. token: sent along.
    """

    def __init__(self, url: str, *, job: str | None = None, token: str | None = None) -> None:
        self.url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        id = job or self.get("/jobs")["jobs"][0]["id"]
        self.job = f"/jobs/{id}"

    @staticmethod
    def of(client: JobClient) -> "Rest":
        """The one of a job of this process."""
        url = client.get_web_interface_url()
        assert url is not None, "the job is served"
        return Rest(url)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Status and answer. body: sent as JSON, bytes as they are; both are said to be JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {**self._headers, **headers}
        if method == "POST":
            headers = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=END_S) as response:
                status, answer, kind = response.status, response.read(), response.headers
        except urllib.error.HTTPError as error:
            with error:
                status, answer, kind = error.code, error.read(), error.headers
        assert kind["Content-Type"] == "application/json; charset=UTF-8"
        return status, json.loads(answer)

    def get(self, path: str) -> Any:
        """The answer to a question."""
        status, answer = self.ask("GET", path)
        assert status == 200, answer
        return answer

    def text(self, path: str) -> str:
        """The answer to a question that is no JSON."""
        request = urllib.request.Request(self.url + path, headers=self._headers)
        with urllib.request.urlopen(request, timeout=END_S) as response:
            assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
            return response.read().decode()

    def gone(self) -> bool:
        """Whether nobody answers any more."""
        try:
            self.get("/jobs")
        except OSError:
            return True
        return False

    def refused(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Status and the text of an error."""
        status, answer = self.ask(method, path, body)
        assert status >= 300 and list(answer) == ["errors"], answer
        return status, answer["errors"][0]

    def begin(self, path: str, body: object, status: int = 202) -> str:
        """Begin an operation; its id."""
        found, answer = self.ask("POST", path, body)
        assert found == status and list(answer) == ["request-id"], answer
        return answer["request-id"]

    def outcome(self, path: str) -> Any:
        """What has come of an operation, once it is over."""
        seen: list[Any] = []

        def over() -> bool:
            seen.append(self.get(path))
            if seen[-1]["status"] == {"id": "COMPLETED"}:
                return True
            assert seen[-1] == {"status": {"id": "IN_PROGRESS"}, "operation": None}
            return False

        until(over, path, END_S)
        return seen[-1]["operation"]
