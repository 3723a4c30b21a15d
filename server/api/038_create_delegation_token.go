package api

import "kaas/codec/api"

// The principal of every client, as long as there is no authentication.
const (
	anonymousType = "User"
	anonymousName = "ANONYMOUS"
)

// CreateDelegationToken, key 38, v0-v3. v1 same as v0; v2 flexible; v3 owner in the request, requester in the response (KIP-373).
//
// Always 64, as in Apache on a listener without authentication. The same holds for the other requests about tokens.
func createDelegationToken(c *call, _ *api.CreateDelegationTokenRequest, p *api.CreateDelegationTokenResponse) {
	p.ErrorCode = api.ErrDelegationTokenRequestNotAllowed
	p.PrincipalType, p.PrincipalName = anonymousType, anonymousName
	if c.version() >= 3 {
		p.TokenRequesterPrincipalType, p.TokenRequesterPrincipalName = anonymousType, anonymousName
	}
	p.IssueTimestampMs, p.ExpiryTimestampMs, p.MaxTimestampMs = -1, -1, -1
}
