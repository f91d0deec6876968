"""The rules for names of principals; the cases are those of KIP-371 and of Kafka's documentation."""

from __future__ import annotations

import re

import pytest

from gregor.config.definitions import ConfigError
from gregor.config.security.principal_rules import KerberosRules, NoMatchingRule, PrincipalRules

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


# ---- Kerberos --------------------------------------------------------------------------------------------------------

REALM = "REALM.COM"


def short_name(rules: list[str], principal: str) -> str:
    return KerberosRules(rules).name_of(principal, REALM)


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("App.service-name/example.com@REALM.COM", "service-name"),
        ("App.service-name@REALM.COM", "service-name"),
        ("user/host@REALM.COM", "user"),
        ("user@REALM.COM", "user"),
        ("simple", "simple"),
    ],
)
def test_examples_of_kafka_for_kerberos(principal: str, name: str) -> None:
    rules = [r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT"]
    assert short_name(rules, principal) == name


@pytest.mark.parametrize(
    ("rule", "principal", "name"),
    [
        # Kafka's KerberosNameTest: lower case with every form of a rule.
        (r"RULE:[1:$1]/L", "User@REALM.COM", "user"),
        (r"RULE:[2:$1](Test.*)s/ABC///L", "TestABC/host@FOO.COM", "test"),
        (r"RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L", "ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
        (r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/L", "App.SERVICE-name/example.com@REALM.COM", "service-name"),
        ("DEFAULT/L", "User@REALM.COM", "user"),
        # Kafka's KerberosRuleTest: parameters of a format are replaced once.
        ("RULE:[1:hello $0]", "a@too", "hello too"),
        ("RULE:[1:hello $0]", "a@no recursion $1", "hello no recursion $1"),
        ("RULE:[1:hello]", "a@X", "hello"),
        # Other cases of Kafka's KerberosRule.
        ("RULE:[2:$2-$1.$0]", "kafka/host@FOO", "host-kafka.FOO"),
        (r"RULE:[1:$1@$0](.*@FOO)s/@.*//", "bob@FOO", "bob"),
        (r"RULE:[1:$1]s/b/x/", "bob@FOO", "xob"),
        (r"RULE:[1:$1]s/b/x/g", "bob@FOO", "xox"),
        (r"RULE:[1:$1]s/(.)(.)/$2$1/", "bob@FOO", "obb"),
        (r"RULE:[1:$1](none)s/b/x/", "bob@FOO", None),
        (r"RULE:[1:$1](bo)s/b/x/", "bob@FOO", None),
        ("RULE:[2:$1]", "bob@FOO", None),
        ("RULE:[3:$1]", "a/b@FOO", None),
        ("DEFAULT", "bob@FOO", None),
        ("DEFAULT", "bob@realm.com", None),
    ],
)
def test_rule_of_kerberos(rule: str, principal: str, name: str | None) -> None:
    if name is not None:
        assert short_name([rule], principal) == name
        return
    with pytest.raises(NoMatchingRule, match=f"fits {re.escape(principal)}; the default realm is REALM.COM"):
        short_name([rule], principal)


def test_first_rule_of_kerberos_that_fits_decides() -> None:
    rules = ["RULE:[1:$1](a.*)s/.*/first/", "RULE:[1:second]", "DEFAULT"]
    assert [short_name(rules, f"{name}@REALM.COM") for name in ("ab", "b", "b/host")] == ["first", "second", "b"]


@pytest.mark.parametrize(
    ("rule", "principal", "reason"),
    [
        ("RULE:[1:$1@$0]", "bob@FOO", "makes bob@FOO, which has a / or @ still"),
        ("RULE:[2:$1/$2]", "a/b@FOO", "makes a/b, which has"),
        ("RULE:[1:$2]", "bob@FOO", r"refers to \$2; there are \$0 to \$1"),
        ("RULE:[1:$a]", "bob@FOO", r"refers to \$;"),
        ("DEFAULT", "a/b/c@REALM.COM", "a/b/c@REALM.COM is no name of Kerberos"),
        ("DEFAULT", "a@b@REALM.COM", "is no name of Kerberos"),
    ],
)
def test_rule_of_kerberos_that_makes_no_name(rule: str, principal: str, reason: str) -> None:
    with pytest.raises(NoMatchingRule, match=reason):
        short_name([rule, "RULE:[1:other]"], principal)


@pytest.mark.parametrize(
    "rule",
    [
        *("", "default", "DEFAUL", "DEFAULT/U", "DEFAULT/g", "rule:[1:$1]", "RULE:[:$1]", "RULE:[n:$1]", "RULE:[1:$1"),
        *("RULE:[1:$1](a", "RULE:[1:$1](()", "RULE:[1:$1] ", "RULE:[1:$1]/U", "RULE:[1:$1]/l", "RULE:[1:$1]/LL"),
        *("RULE:[1:$1]s/a/b", "RULE:[1:$1]s/[/b/", "RULE:[1:$1]s/a/b/G", "RULE:[2:$1](ABC.*)s/ABC/XYZ/L/g"),
    ],
)
def test_text_that_is_no_rule_of_kerberos(rule: str) -> None:
    with pytest.raises(ConfigError, match="sasl.kerberos.principal.to.local.rules="):
        KerberosRules(["DEFAULT", rule])
