package server

import (
	"strings"
	"testing"

	"kaas/codec/api"
)

// metadata.version has one level: it may be asked for, and everything else is refused with the reason.
func TestFeatureUpdates(t *testing.T) {
	c := dial(t, broker(t))
	for _, x := range []struct {
		version int16
		update  api.UpdateFeaturesRequestFeatureUpdateKey
		reason  string // "": accepted
	}{
		{1, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "metadata.version", MaxVersionLevel: 19, UpgradeType: 1}, ""},
		{1, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "metadata.version", MaxVersionLevel: 20, UpgradeType: 1}, "Local controller 1 only supports versions 1-19"},
		{1, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "metadata.version", MaxVersionLevel: 0, UpgradeType: 3}, "Local controller 1 only supports versions 1-19"},
		{1, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "metadata.version", MaxVersionLevel: 18, UpgradeType: 1}, "Can't downgrade the version of this feature without"},
		{0, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "metadata.version", MaxVersionLevel: 18, UpgradeType: 1}, "Can't downgrade the version of this feature without"},
		{0, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "metadata.version", MaxVersionLevel: 18, UpgradeType: 1, AllowDowngrade: true}, "This broker has one level"},
		{1, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "metadata.version", MaxVersionLevel: 18, UpgradeType: 3}, "This broker has one level"},
		{1, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "metadata.version", MaxVersionLevel: 19, UpgradeType: 0}, "The controller does not support the given upgrade type."},
		{1, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "other", MaxVersionLevel: -1, UpgradeType: 1}, "A feature version cannot be less than 0."},
		{1, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "other", MaxVersionLevel: 1, UpgradeType: 1}, "Local controller 1 does not support this feature."},
		{1, api.UpdateFeaturesRequestFeatureUpdateKey{Feature: "other", MaxVersionLevel: 0, UpgradeType: 2}, ""},
	} {
		var p api.UpdateFeaturesResponse
		c.call(api.KeyUpdateFeatures, x.version, &api.UpdateFeaturesRequest{FeatureUpdates: []api.UpdateFeaturesRequestFeatureUpdateKey{x.update}}, &p)
		if p.ErrorCode != 0 || len(p.Results) != 1 || p.Results[0].Feature != x.update.Feature {
			t.Fatalf("%+v: %+v", x.update, p)
		}
		want := api.ErrNone
		if x.reason != "" {
			want = api.ErrInvalidUpdateVersion
		}
		if r := p.Results[0]; r.ErrorCode != want || !strings.Contains(r.ErrorMessage.String, x.reason) || r.ErrorMessage.Valid != (x.reason != "") {
			t.Errorf("v%d %+v: %v %+v, want %v %q", x.version, x.update, r.ErrorCode, r.ErrorMessage, want, x.reason)
		}
	}
	var v api.ApiVersionsResponse
	c.call(api.KeyApiVersions, 3, &api.ApiVersionsRequest{ClientSoftwareName: "test", ClientSoftwareVersion: "1"}, &v)
	if f := v.FinalizedFeatures; len(f) != 1 || f[0].Name != "metadata.version" || f[0].MaxVersionLevel != 19 {
		t.Errorf("after the updates: %+v", f)
	}
}
