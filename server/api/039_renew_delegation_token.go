package api

import "kaas/codec/api"

// RenewDelegationToken, key 39, v0-v2. v1 same as v0; v2 flexible.
//
// Always 64: see CreateDelegationToken.
func renewDelegationToken(_ *call, _ *api.RenewDelegationTokenRequest, p *api.RenewDelegationTokenResponse) {
	p.ErrorCode, p.ExpiryTimestampMs = api.ErrDelegationTokenRequestNotAllowed, -1
}
