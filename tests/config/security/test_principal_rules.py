"""The rules for names of principals; the cases are those of KIP-371 and of Kafka's documentation."""

from __future__ import annotations

import pytest

from gregor.config.definitions import ConfigError
from gregor.config.security.principal_rules import NoMatchingRule, PrincipalRules

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"
RULES = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", DUKE, DUKE),
        ("  DEFAULT  ", DUKE, DUKE),
        (RULES, DUKE, "duke"),
        (RULES, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (RULES, "OU=JavaProducts,O=Sun,CN=Duke", "DUKE"),
        (RULES, "OU=JavaProducts", "OU=JavaProducts"),
        ("RULE:^CN=(.*?),.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=(.*?),.*$/$1@$2@$12/", DUKE, "Duke@$2@Duke2"),
        (r"RULE:^cn=(\w+)\/(\w+)$/$2\/$1/L,DEFAULT", "cn=a/B", "b/a"),
        ("RULE:x/y/,,DEFAULT", "z", "z"),
        ("RULE:.*/all/", "z", "allall"),
        ("RULE:^CN=([^,]*),.*$/a,b $1/", DUKE, "a,b Duke"),
    ],
)
def test_name(rules: str, subject: str, name: str) -> None:
    assert PrincipalRules(rules).name_of(subject) == name


def test_no_rule_fits() -> None:
    with pytest.raises(NoMatchingRule, match="no rule of ssl.principal.mapping.rules=RULE:a/b/ fits the subject CN=x"):
        PrincipalRules("RULE:a/b/").name_of("CN=x")


@pytest.mark.parametrize(
    "rules", ["default", "RULE:", "RULE:a/b", "RULE:a/b/X", "DEFAULT/L", "RULE:(/x/", "DEFAULT DEFAULT"]
)
def test_illegal_rules(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^listener\.name\.a\.ssl\.principal\.mapping\.rules="):
        PrincipalRules(rules, "listener.name.a.")
