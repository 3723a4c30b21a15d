package api

import (
	"fmt"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// UpdateFeatures, key 57, v0-v1. v1 type of upgrade in place of allow_downgrade, validate_only (KIP-584, KIP-778).
//
// The only feature is metadata.version, at one level: asking for that level succeeds, and so does level 0 of features that there are
// not, which switches them off. Everything else is refused (95).
//
// Deviation: metadata.version cannot be lowered. Apache allows it between levels with the same metadata.
// Deviation: timeout_ms is not looked at: nothing has to be waited for.
func updateFeatures(c *call, q *api.UpdateFeaturesRequest, p *api.UpdateFeaturesResponse) {
	for i := range q.FeatureUpdates {
		asked := &q.FeatureUpdates[i]
		kind := asked.UpgradeType
		if c.version() == 0 {
			kind = upgrade
			if asked.AllowDowngrade {
				kind = safeDowngrade
			}
		}
		o := api.Next(&p.Results)
		o.Feature, o.ErrorMessage = asked.Feature, wire.NullString{}
		if why := c.s.refuseFeature(asked.Feature, asked.MaxVersionLevel, kind); why != "" {
			o.ErrorCode = api.ErrInvalidUpdateVersion
			o.ErrorMessage = wire.Some(fmt.Sprintf("Invalid update version %d for feature %s. %s", asked.MaxVersionLevel, asked.Feature, why))
		}
	}
}

// Types of upgrade.
const (
	upgrade         = 1
	safeDowngrade   = 2
	unsafeDowngrade = 3
)

// refuseFeature tells why a feature cannot have a level, in the order of Apache's checks; "" if it has it already.
func (s *Service) refuseFeature(name string, level int16, kind int8) string {
	known := name == metadataFeature
	switch {
	case kind < upgrade || kind > unsafeDowngrade:
		return "The controller does not support the given upgrade type."
	case level < 0:
		return "A feature version cannot be less than 0."
	case !known && level > 0:
		return fmt.Sprintf("Local controller %d does not support this feature.", s.nodeID)
	case known && (level < minMetadataVersion || level > metadataVersion):
		return fmt.Sprintf("Local controller %d only supports versions %d-%d", s.nodeID, minMetadataVersion, metadataVersion)
	case known && level < metadataVersion && kind == upgrade:
		return "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
	case known && level < metadataVersion:
		return "This broker has one level of the feature only."
	default:
		return ""
	}
}
