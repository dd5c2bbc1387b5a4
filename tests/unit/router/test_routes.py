"""Errors at the paths that are passed on: whoever answers, router or worker, the client reads the same fields."""

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router.routes import PASSED, PassedRoute, fault_body, http_error, shape_of
from agentcache.web.status import shaped_answer
from agentcache.worker.generate import APIS, Api

ERROR = CacheError(Kind.PROMPT_TOO_LONG, "too long", param="messages", tokens=9)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.route)
def test_router_and_worker_say_an_error_alike(api: Api) -> None:
    assert shaped_answer(shape_of(api.route), ERROR) == api.error(ERROR)


@pytest.mark.parametrize("route", PASSED, ids=lambda route: route.path)
def test_all_errors_of_a_path_have_the_same_fields(route: PassedRoute) -> None:
    path = route.path
    _, body = shaped_answer(shape_of(path), ERROR, "id")
    for other in (fault_body(path), http_error(path, 405, "no", "method_not_allowed")):
        assert other.keys() == body.keys()
        assert other["error"].keys() == body["error"].keys()  # type: ignore[attr-defined]


def test_a_path_that_is_not_there_is_answered_as_the_one_above_it() -> None:
    assert http_error("/v1/messages/nothing", 404, "no", "not_found", "id")["request_id"] == "id"
    assert http_error("/v1/responses/resp_1", 404, "no", "not_found")["code"] == "not_found"
    assert http_error("/v1/nothing", 404, "no", "not_found").keys() == {"error"}
