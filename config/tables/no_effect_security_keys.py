"""Broker settings without effect here: of TLS, SASL and delegation tokens."""

from __future__ import annotations

from gregor.config.definitions import PER_BROKER, ConfigDef

_TLS = "gregor speaks no TLS"
_SASL = "gregor has no SASL"
_TOKEN = "gregor has no delegation tokens"

SECURITY_KEYS = (
    ConfigDef(
        "ssl.allow.dn.changes", "boolean", False, "Whether a new certificate may have another name.", no_effect=_TLS
    ),
    ConfigDef(
        "ssl.allow.san.changes",
        "boolean",
        False,
        "Whether a new certificate may have other alternative names.",
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.cipher.suites",
        "list",
        [],
        "Cipher suites that may be agreed on; empty: all.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.client.auth",
        "string",
        "none",
        "Whether clients must show a certificate.",
        choices=("required", "requested", "none"),
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.enabled.protocols",
        "list",
        ["TLSv1.2", "TLSv1.3"],
        "TLS versions that may be agreed on.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.endpoint.identification.algorithm",
        "string",
        "https",
        "How a server's name is checked against its certificate.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.engine.factory.class", "class", None, "Class that makes TLS engines.", dynamic=PER_BROKER, no_effect=_TLS
    ),
    ConfigDef("ssl.key.password", "password", None, "Password of the private key.", dynamic=PER_BROKER, no_effect=_TLS),
    ConfigDef(
        "ssl.keymanager.algorithm",
        "string",
        "SunX509",
        "Algorithm of the key manager.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.keystore.certificate.chain",
        "password",
        None,
        "Certificates of this broker, as PEM.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.keystore.key", "password", None, "Private key of this broker, as PEM.", dynamic=PER_BROKER, no_effect=_TLS
    ),
    ConfigDef(
        "ssl.keystore.location",
        "string",
        None,
        "File with this broker's key and certificates.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef("ssl.keystore.password", "password", None, "Password of that file.", dynamic=PER_BROKER, no_effect=_TLS),
    ConfigDef("ssl.keystore.type", "string", "JKS", "Format of that file.", dynamic=PER_BROKER, no_effect=_TLS),
    ConfigDef(
        "ssl.principal.mapping.rules",
        "string",
        "DEFAULT",
        "Rules that make a short name of a certificate's name.",
        no_effect=_TLS,
    ),
    ConfigDef("ssl.protocol", "string", "TLSv1.3", "TLS version of a new context.", dynamic=PER_BROKER, no_effect=_TLS),
    ConfigDef(
        "ssl.provider",
        "string",
        None,
        "Security provider for TLS; unset takes Java's.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.secure.random.implementation",
        "string",
        None,
        "Source of random numbers for TLS.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.trustmanager.algorithm",
        "string",
        "PKIX",
        "Algorithm of the trust manager.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.truststore.certificates",
        "password",
        None,
        "Trusted certificates, as PEM.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.truststore.location",
        "string",
        None,
        "File with the trusted certificates.",
        dynamic=PER_BROKER,
        no_effect=_TLS,
    ),
    ConfigDef(
        "ssl.truststore.password", "password", None, "Password of that file.", dynamic=PER_BROKER, no_effect=_TLS
    ),
    ConfigDef("ssl.truststore.type", "string", "JKS", "Format of that file.", dynamic=PER_BROKER, no_effect=_TLS),
    ConfigDef(
        "connection.failed.authentication.delay.ms",
        "int",
        100,
        "Pause before a connection that failed to authenticate is closed.",
        minimum=0,
        no_effect=_SASL,
    ),
    ConfigDef(
        "connections.max.reauth.ms",
        "long",
        0,
        "How long an authentication lasts; 0: for the whole connection.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.client.callback.handler.class",
        "class",
        None,
        "Class that answers a SASL client's questions.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.enabled.mechanisms",
        "list",
        ["GSSAPI"],
        "SASL mechanisms that are served.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.jaas.config", "password", None, "Login module and its options.", dynamic=PER_BROKER, no_effect=_SASL
    ),
    ConfigDef(
        "sasl.kerberos.kinit.cmd", "string", "/usr/bin/kinit", "Path of kinit.", dynamic=PER_BROKER, no_effect=_SASL
    ),
    ConfigDef(
        "sasl.kerberos.min.time.before.relogin",
        "long",
        60000,
        "Least time between two renewals of a ticket.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.kerberos.principal.to.local.rules",
        "list",
        ["DEFAULT"],
        "Rules that make a short name of a Kerberos principal.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.kerberos.service.name",
        "string",
        None,
        "Kerberos name of the service.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.kerberos.ticket.renew.jitter",
        "double",
        0.05,
        "Random share of the time until a ticket is renewed.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.kerberos.ticket.renew.window.factor",
        "double",
        0.8,
        "Share of a ticket's life after which it is renewed.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.login.callback.handler.class", "class", None, "Class that answers a login's questions.", no_effect=_SASL
    ),
    ConfigDef("sasl.login.class", "class", None, "Class that logs in.", no_effect=_SASL),
    ConfigDef(
        "sasl.login.connect.timeout.ms",
        "int",
        None,
        "How long a connection to the identity provider may take.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.login.read.timeout.ms",
        "int",
        None,
        "How long an answer of the identity provider may take.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.login.refresh.buffer.seconds",
        "short",
        300,
        "Time before a token's end that is left for its renewal.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.login.refresh.min.period.seconds",
        "short",
        60,
        "Least time between two renewals of a token.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.login.refresh.window.factor",
        "double",
        0.8,
        "Share of a token's life after which it is renewed.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.login.refresh.window.jitter",
        "double",
        0.05,
        "Random share of that time.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.login.retry.backoff.max.ms",
        "long",
        10000,
        "Longest pause between two attempts to log in.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.login.retry.backoff.ms", "long", 100, "First pause between two attempts to log in.", no_effect=_SASL
    ),
    ConfigDef(
        "sasl.mechanism.controller.protocol", "string", "GSSAPI", "SASL mechanism towards controllers.", no_effect=_SASL
    ),
    ConfigDef(
        "sasl.mechanism.inter.broker.protocol",
        "string",
        "GSSAPI",
        "SASL mechanism among brokers.",
        dynamic=PER_BROKER,
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.algorithm", "string", "RS256", "Algorithm that signs an assertion.", no_effect=_SASL
    ),
    ConfigDef("sasl.oauthbearer.assertion.claim.aud", "string", None, "Audience of an assertion.", no_effect=_SASL),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "int",
        300,
        "How long an assertion is valid.",
        minimum=0,
        maximum=86400,
        no_effect=_SASL,
    ),
    ConfigDef("sasl.oauthbearer.assertion.claim.iss", "string", None, "Issuer of an assertion.", no_effect=_SASL),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.jti.include",
        "boolean",
        False,
        "Whether an assertion gets an id of its own.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "int",
        60,
        "How far back the start of an assertion's life is set.",
        minimum=0,
        maximum=3600,
        no_effect=_SASL,
    ),
    ConfigDef("sasl.oauthbearer.assertion.claim.sub", "string", None, "Subject of an assertion.", no_effect=_SASL),
    ConfigDef("sasl.oauthbearer.assertion.file", "string", None, "File with a finished assertion.", no_effect=_SASL),
    ConfigDef(
        "sasl.oauthbearer.assertion.private.key.file",
        "string",
        None,
        "File with the key that signs assertions.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.private.key.passphrase", "password", None, "Password of that file.", no_effect=_SASL
    ),
    ConfigDef(
        "sasl.oauthbearer.assertion.template.file",
        "string",
        None,
        "File with claims that every assertion gets.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.id",
        "string",
        None,
        "Client id for the token endpoint.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.client.credentials.client.secret",
        "password",
        None,
        "Client secret for the token endpoint.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.clock.skew.seconds", "int", 30, "Difference of clocks that is allowed for.", no_effect=_SASL
    ),
    ConfigDef(
        "sasl.oauthbearer.expected.audience", "list", [], "Audiences of which a token must name one.", no_effect=_SASL
    ),
    ConfigDef("sasl.oauthbearer.expected.issuer", "string", None, "Issuer that a token must name.", no_effect=_SASL),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "long",
        3600000,
        "How often the provider's keys are fetched.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "long",
        10000,
        "Longest pause between two attempts to fetch them.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "long",
        100,
        "First pause between two attempts to fetch them.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.jwks.endpoint.url",
        "string",
        None,
        "Where the provider's keys are fetched from.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.jwt.retriever.class",
        "class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Class that gets tokens.",
        no_effect=_SASL,
    ),
    ConfigDef(
        "sasl.oauthbearer.jwt.validator.class",
        "class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Class that checks tokens.",
        no_effect=_SASL,
    ),
    ConfigDef("sasl.oauthbearer.scope", "string", None, "Scope to ask a token for.", no_effect=_SASL),
    ConfigDef(
        "sasl.oauthbearer.scope.claim.name", "string", "scope", "Claim that holds a token's scopes.", no_effect=_SASL
    ),
    ConfigDef(
        "sasl.oauthbearer.sub.claim.name", "string", "sub", "Claim that holds a token's subject.", no_effect=_SASL
    ),
    ConfigDef("sasl.oauthbearer.token.endpoint.url", "string", None, "Where tokens are asked for.", no_effect=_SASL),
    ConfigDef(
        "sasl.server.callback.handler.class",
        "class",
        None,
        "Class that checks what SASL clients send.",
        no_effect=_SASL,
    ),
    ConfigDef("sasl.server.max.receive.size", "int", 524288, "Largest message of a SASL exchange.", no_effect=_SASL),
    ConfigDef(
        "delegation.token.expiry.check.interval.ms",
        "long",
        3600000,
        "How often expired delegation tokens are removed.",
        minimum=1,
        no_effect=_TOKEN,
    ),
    ConfigDef(
        "delegation.token.expiry.time.ms",
        "long",
        86400000,
        "How long a delegation token is valid without a renewal.",
        minimum=1,
        no_effect=_TOKEN,
    ),
    ConfigDef(
        "delegation.token.max.lifetime.ms",
        "long",
        604800000,
        "How long a delegation token can be renewed.",
        minimum=1,
        no_effect=_TOKEN,
    ),
    ConfigDef(
        "delegation.token.secret.key",
        "password",
        None,
        "Secret that signs delegation tokens; the same on all brokers.",
        no_effect=_TOKEN,
    ),
)
