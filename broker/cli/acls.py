"""`gregor acls`: access rules, with the flags and the output of kafka-acls.sh; --explain says why something is allowed.

The rules are those of the brokers' authorizer (authorizer.class.name).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from gregor.broker.authorization.rules import SUPER_USER, Client, Decision, RuleSet, java_host
from gregor.broker.cli.acl_options import check_flags, parse_question, patterns_of, principal_of, rules_of
from gregor.broker.cli.command import bootstrap_option, command_config_option, only_one, run
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.wire import WireClient, check_code
from gregor.config.tables.authorizer_keys import parse_super_users
from gregor.protocol.acls import (
    Acl,
    AclFilter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    text_of,
)
from gregor.protocol.messages import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
)

BROKER_RESOURCE = 4
"""The type of a broker's settings in DescribeConfigs."""
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
_SETTINGS = ("super.users", "allow.everyone.if.no.acl.found")

EPILOG = """\b
Examples:
  gregor acls --add --allow-principal User:alice --producer --topic orders
  gregor acls --add --allow-principal User:bob --consumer --topic orders --group billing
  gregor acls --add --deny-principal User:eve --operation All --topic secret- --resource-pattern-type prefixed
  gregor acls --list --topic orders --resource-pattern-type match
  gregor acls --remove --allow-principal User:bob --operation Read --topic orders --force
  gregor acls --explain User:alice Write topic:orders
"""


def _names(flag: str, parameter: str, help: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(flag, parameter, multiple=True, metavar="NAME", help=help)


def _principals(flag: str, parameter: str, help: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(flag, parameter, multiple=True, metavar="TYPE:NAME", help=help)


@click.command("acls", epilog=EPILOG)
@bootstrap_option()
@command_config_option()
@click.option("--add", is_flag=True, help="Add rules.")
@click.option("--remove", is_flag=True, help="Remove rules; without principals, all of the resources.")
@click.option("--list", "listing", is_flag=True, help="Show rules; without resources, all.")
@click.option(
    "--explain",
    nargs=3,
    metavar="PRINCIPAL OPERATION RESOURCE",
    help="Show whether this is allowed, and by which rule.",
)
@click.option("--from-host", metavar="HOST", help="With --explain: the address of the client; by default any.")
@_names("--topic", "topics", "A topic; * for all. Repeatable, like the other resources.")
@_names("--group", "groups", "A group; * for all.")
@click.option("--cluster", is_flag=True, help="The cluster.")
@_names("--transactional-id", "transactional_ids", "A transactional id; * for all.")
@_names("--delegation-token", "tokens", "A delegation token; * for all.")
@_names("--user-principal", "users", "A user as a resource, TYPE:NAME, for the operations on his delegation tokens.")
@click.option(
    "--resource-pattern-type",
    "pattern_type",
    type=click.Choice(["any", "match", "literal", "prefixed"], case_sensitive=False),
    default="literal",
    show_default=True,
    help="How the names of resources are meant; any and match are for --list and --remove.",
)
@_principals("--allow-principal", "allow_principals", "A principal that is allowed; User:* for all.")
@_principals("--deny-principal", "deny_principals", "A principal that is denied, whatever else allows him.")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="HOST", help="Address of the allowed; default all.")
@click.option("--deny-host", "deny_hosts", multiple=True, metavar="HOST", help="Address of the denied; default all.")
@click.option(
    "--operation", "operations", multiple=True, metavar="NAME", help="Such as Read or AlterConfigs; default All."
)
@_principals("--principal", "principals", "With --list: only rules of this principal.")
@click.option("--producer", is_flag=True, help="The operations of a producer on --topic and --transactional-id.")
@click.option("--consumer", is_flag=True, help="The operations of a consumer on --topic and --group.")
@click.option("--idempotent", is_flag=True, help="With --producer: idempotent writes, too.")
@click.option("--force", is_flag=True, help="Remove without a question.")
def acls(**given: Any) -> None:
    """Show, add and remove access rules, and explain their decisions."""
    given["list"] = given.pop("listing")
    action = only_one(("--add", "--remove", "--list", "--explain"), given)
    check_flags(action, given)
    if action == "--add" and given["pattern_type"].lower() not in ("literal", "prefixed"):
        raise click.UsageError("--add needs --resource-pattern-type literal or prefixed.")
    rules = rules_of(given) if action in ("--add", "--remove") else {}
    if action == "--add" and not all(rules.values()):
        raise click.UsageError("--add needs --allow-principal or --deny-principal.")
    with WireClient(given["bootstrap"], given["config_file"]) as client:
        if action == "--add":
            add(client, rules)
        elif action == "--remove":
            remove(client, rules, force=given["force"])
        elif action == "--list":
            show(client, patterns_of(given), [principal_of(text) for text in given["principals"]])
        else:
            explain(client, given["explain"], given["from_host"])


# -- actions -----------------------------------------------------------------------------------------------------------


def add(client: WireClient, rules: Mapping[Pattern, Sequence[Rule]]) -> None:
    """Add the rules that are not there yet."""
    for pattern, wanted in rules.items():
        known = set(fetch(client, filter_of(pattern)))
        missing = [rule for rule in wanted if Acl(pattern, rule) not in known]
        for rule in wanted:
            if rule not in missing:
                print(f"Acl (pattern={pattern_text(pattern)}, entry={rule_text(rule)}) already exists.")
        if missing:
            print(f"Adding ACLs for resource `{pattern_text(pattern)}`: \n {_lines(missing)}\n")
            response = client.send(CreateAclsRequest(creations=[_creation(pattern, rule) for rule in missing]))
            for result in response.results:
                check_code(result.error_code, result.error_message)


def remove(client: WireClient, rules: Mapping[Pattern, Sequence[Rule]], *, force: bool) -> None:
    """Remove these rules, and all of a pattern that has none here."""
    for pattern, wanted in rules.items():
        of_pattern = pattern_text(pattern)
        if not wanted:
            question = f"Are you sure you want to delete all ACLs for resource filter `{of_pattern}`? (y/n)"
        else:
            listed = f"ACLs: \n {_lines(wanted)}\n from resource filter `{of_pattern}`"
            question = f"Are you sure you want to remove {listed}? (y/n)"
        if not force and not _confirmed(question):
            continue
        filters = [filter_of(pattern, rule) for rule in wanted] or [filter_of(pattern)]
        response = client.send(DeleteAclsRequest(filters=[_filter_fields(one) for one in filters]))
        for result in response.filter_results:
            check_code(result.error_code, result.error_message)
            for matching in result.matching_acls:
                check_code(matching.error_code, matching.error_message)


def show(client: WireClient, patterns: Sequence[Pattern], principals: Sequence[str]) -> None:
    """Print the rules of these resources, or all."""
    filters = [filter_of(pattern) for pattern in patterns] or [AclFilter()]
    found = dict.fromkeys(acl for one in filters for acl in fetch(client, one))
    if not principals:
        _print_by_pattern(found)
    for principal in principals:
        print(f"ACLs for principal `{principal}`")
        _print_by_pattern(acl for acl in found if acl.rule.principal == principal)


def explain(client: WireClient, question: Sequence[str], from_host: str | None) -> None:
    """Print the decision about an operation, and the rules that apply to the resource."""
    principal, operation, pattern = parse_question(question)
    host = java_host(from_host) if from_host else "(any)"
    about = fetch(client, AclFilter(pattern.resource, pattern.name, PatternType.MATCH))
    settings = fetch_settings(client)
    decision = decide(about, settings, Client(principal, host), operation, pattern)
    verb = "may" if decision.allowed else "may not"
    print(
        f"{principal} {verb} {text_of(operation)} {text_of(pattern.resource)} {pattern.name} from host {host}: "
        f"{decision.reason}"
    )
    _print_by_pattern(about)
    if not from_host and any(acl.rule.host != "*" for acl in about):
        print("Some rules are about single hosts: --from-host HOST decides for one of them.")
    hidden = [key for key in _SETTINGS if key not in settings]
    if hidden and decision.rule is None:
        print(f"The broker does not show {' and '.join(hidden)}, which may allow it nevertheless.")


def decide(
    about: Iterable[Acl], settings: Mapping[str, str], client: Client, operation: Operation, pattern: Pattern
) -> Decision:
    """Return the decision that the authorizer makes by these rules and settings."""
    if client.principal in parse_super_users(settings.get("super.users", "")):
        return SUPER_USER
    by_pattern: dict[Pattern, list[Rule]] = {}
    for acl in about:
        by_pattern.setdefault(acl.pattern, []).append(acl.rule)
    rules = RuleSet()
    for of_pattern, entries in by_pattern.items():
        rules.replace(of_pattern, entries)
    everyone = settings.get("allow.everyone.if.no.acl.found", "false").lower() == "true"
    return rules.decide(client, operation, pattern.resource, pattern.name, allow_everyone=everyone)


# -- requests ----------------------------------------------------------------------------------------------------------


def filter_of(pattern: Pattern, rule: Rule | None = None) -> AclFilter:
    """Return the filter of a pattern (which may be of the types ANY and MATCH), and of one rule of it."""
    if rule is None:
        return AclFilter(*pattern)
    return AclFilter(*pattern, rule.principal, rule.host, rule.operation, rule.permission)


def fetch(client: WireClient, wanted: AclFilter) -> list[Acl]:
    """Return the rules that a filter matches. Raises CommandError."""
    response = client.send(DescribeAclsRequest(**_fields(wanted)))
    check_code(response.error_code, response.error_message)
    return [
        Acl(
            Pattern(ResourceType(one.resource_type), one.resource_name, PatternType(one.pattern_type)),
            Rule(acl.principal, Permission(acl.permission_type), Operation(acl.operation), acl.host),
        )
        for one in response.resources
        for acl in one.acls
    ]


def fetch_settings(client: WireClient) -> dict[str, str]:
    """Return the settings of the authorizer that a broker shows, by key. Apache Kafka hides them."""
    node_id = min(client.brokers)
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=list(_SETTINGS)
    )
    (result,) = client.send(DescribeConfigsRequest(resources=[resource]), node_id).results
    return {config.name: config.value for config in result.configs if config.value is not None}


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _filter_fields(wanted: AclFilter) -> DeleteAclsRequest.DeleteAclsFilter:
    return DeleteAclsRequest.DeleteAclsFilter(**_fields(wanted))


def _creation(pattern: Pattern, rule: Rule) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=pattern.resource,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


# -- output ------------------------------------------------------------------------------------------------------------


def pattern_text(pattern: Pattern) -> str:
    """Return a pattern as Java prints it."""
    resource, name, pattern_type = pattern
    return f"ResourcePattern(resourceType={resource.name}, name={name}, patternType={pattern_type.name})"


def rule_text(rule: Rule) -> str:
    """Return a rule as Java prints it."""
    principal, permission, operation, host = rule
    return f"(principal={principal}, host={host}, operation={operation.name}, permissionType={permission.name})"


def _lines(rules: Iterable[Rule]) -> str:
    return "\n".join(f"\t{rule_text(rule)}" for rule in rules)


def _print_by_pattern(found: Iterable[Acl]) -> None:
    by_pattern: dict[Pattern, list[Rule]] = {}
    for acl in found:
        by_pattern.setdefault(acl.pattern, []).append(acl.rule)
    for pattern, rules in by_pattern.items():
        print(f"Current ACLs for resource `{pattern_text(pattern)}`:\n{_lines(rules)}\n")


def _confirmed(question: str) -> bool:
    print(question, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        raise CommandError("nothing was removed: the question has no answer; --force removes without it.")
    return answer.strip().lower() == "y"


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(acls, arguments)
