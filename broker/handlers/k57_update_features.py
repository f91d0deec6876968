"""UpdateFeatures (key 57), versions 0 to 2: change the finalised feature levels of the cluster (KIP-584).

- 1 upgrade types instead of allow_downgrade, validation alone (KIP-778); 2 one error for the whole request.
- All updates are made or none, in each version; the error is that of the request, and in versions 0 and 1 the features
  are listed when all are updated.
- The controller serves it; other brokers respond with NOT_CONTROLLER.
- A downgrade to 0 waits until transactions of the newer protocol have ended and consumer groups are classic ones on all
  brokers; a repeated request waits for the same end, and a failed one changes no level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.part_of import feature_updates
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import KafkaError
from gregor.protocol.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from gregor.replication.admin.features import FeatureUpdate, UpgradeType

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.broker.features.updates import FeatureUpdates

TYPES_FROM = 1

_Result = UpdateFeaturesResponse.UpdatableFeatureResult


@handles(ApiKey.UPDATE_FEATURES, 0, 2, changes=True)
@on_part(feature_updates)
async def update_features(
    features: FeatureUpdates, request: UpdateFeaturesRequest, call: Call
) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(wanted.feature, wanted.max_version_level, _kind(wanted, call.version))
        for wanted in request.feature_updates
    ]
    try:
        await features.update(updates, request.timeout_ms, validate_only=request.validate_only)
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    return UpdateFeaturesResponse(
        error_message=None, results=[_Result(feature=update.name, error_message=None) for update in updates]
    )


def _kind(wanted: UpdateFeaturesRequest.FeatureUpdateKey, version: int) -> UpgradeType:
    if version < TYPES_FROM:
        return UpgradeType.SAFE_DOWNGRADE if wanted.allow_downgrade else UpgradeType.UPGRADE
    try:
        return UpgradeType(wanted.upgrade_type)
    except ValueError:
        return UpgradeType.UNKNOWN
