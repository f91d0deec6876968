"""Access rules without an authorizer: every version of the three requests is answered with SECURITY_DISABLED."""

from __future__ import annotations

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.broker.harness import Harness

VERSIONS = range(4)
FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@pytest.mark.parametrize("version", VERSIONS)
def test_describe(harness: Harness, version: int) -> None:
    answer = harness.ask(DescribeAclsRequest(**FILTER), version)
    assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert answer.error_message


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_create(harness: Harness, version: int, count: int) -> None:
    rule = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
    )
    answer = harness.ask(CreateAclsRequest(creations=[rule] * count), version)
    assert [one.error_code for one in answer.results] == [ErrorCode.SECURITY_DISABLED] * count


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_delete(harness: Harness, version: int, count: int) -> None:
    answer = harness.ask(DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**FILTER)] * count), version)
    assert [one.error_code for one in answer.filter_results] == [ErrorCode.SECURITY_DISABLED] * count
    assert all(one.matching_acls == [] for one in answer.filter_results)
