package api

import "kaas/codec/api"

// DescribeDelegationToken, key 41, v0-v3. v1 same as v0; v2 flexible; v3 requester of a token (KIP-373).
//
// Always 64: see CreateDelegationToken.
func describeDelegationToken(_ *call, _ *api.DescribeDelegationTokenRequest, p *api.DescribeDelegationTokenResponse) {
	p.ErrorCode = api.ErrDelegationTokenRequestNotAllowed
}
