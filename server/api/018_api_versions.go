package api

import (
	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/netio"
)

// ApiVersions, key 18, v0-v3. v1 throttle time; v3 flexible body (never a flexible header), client software name and version,
// supported and finalized features (tagged).
//
// A version out of range is answered in v0 with error 35 and key 18 alone (KIP-511).
//
// Deviation: only what is served is listed. Apache lists all its APIs.
// Deviation: the epoch of finalized features is always 0, because no feature can be altered.
func serveApiVersions(c *call) {
	ls := c.conn.Data.(*connState).ls // every connection asks this once: it leaves no garbage
	q, p := &ls.versionsRequest, &ls.versionsResponse
	if !c.decode(q) {
		return
	}
	*p = api.ApiVersionsResponse{} // its lists are shared: Default would keep them as memory to write to
	p.Default()
	if c.version() >= 3 && (!softwareName(q.ClientSoftwareName) || !softwareName(q.ClientSoftwareVersion)) {
		p.ErrorCode = api.ErrInvalidRequest
		c.answer(p)
		return
	}
	p.ApiKeys = c.s.advertised
	p.SupportedFeatures = supportedFeatures
	p.FinalizedFeatures = finalizedFeatures
	p.FinalizedFeaturesEpoch = c.s.featuresEpoch
	c.answer(p)
}

// metadataVersion is Apache's metadata.version 3.7-IV4: what the answers of this broker look like.
const (
	metadataFeature    = "metadata.version"
	minMetadataVersion = 1
	metadataVersion    = 19
)

var (
	supportedFeatures = []api.ApiVersionsResponseSupportedFeatureKey{{Name: metadataFeature, MinVersion: minMetadataVersion, MaxVersion: metadataVersion}}
	finalizedFeatures = []api.ApiVersionsResponseFinalizedFeatureKey{{Name: metadataFeature, MinVersionLevel: metadataVersion, MaxVersionLevel: metadataVersion}}
)

// advertise makes the list that ApiVersions answers: what has a handler.
func advertise(t *[maxKey]*handler) (keys []api.ApiVersionsResponseApiVersion) {
	for _, h := range t {
		if h != nil {
			keys = append(keys, api.ApiVersionsResponseApiVersion{ApiKey: h.key, MinVersion: h.min, MaxVersion: h.max})
		}
	}
	return keys
}

// answerUnknownApiVersions tells a client of another age which versions of ApiVersions it may use.
func (s *Service) answerUnknownApiVersions(c *netio.Conn, correlation int32) {
	h := s.handlers[api.KeyApiVersions]
	p := api.ApiVersionsResponse{ErrorCode: api.ErrUnsupportedVersion}
	p.ApiKeys = []api.ApiVersionsResponseApiVersion{{ApiKey: h.key, MinVersion: h.min, MaxVersion: h.max}}
	s.counted.error(api.KeyApiVersions, p.ErrorCode)
	reply := s.newReply(c, api.KeyApiVersions)
	w := wire.Writer{B: reply.Buf[:0]}
	encodeResponse(&w, h.fact, 0, correlation, &p)
	reply.Buf = w.B
	reply.Send()
}

// softwareName tells whether s matches [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])? (KIP-511).
func softwareName(s string) bool {
	for i := 0; i < len(s); i++ {
		ch := s[i]
		letter := ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= '0' && ch <= '9'
		if !letter && (i == 0 || i == len(s)-1 || ch != '-' && ch != '.') {
			return false
		}
	}
	return s != ""
}
