package api

import "kaas/codec/api"

// ExpireDelegationToken, key 40, v0-v2. v1 same as v0; v2 flexible.
//
// Always 64: see CreateDelegationToken.
func expireDelegationToken(_ *call, _ *api.ExpireDelegationTokenRequest, p *api.ExpireDelegationTokenResponse) {
	p.ErrorCode, p.ExpiryTimestampMs = api.ErrDelegationTokenRequestNotAllowed, -1
}
