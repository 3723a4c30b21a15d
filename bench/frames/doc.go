// Package frames makes the few request frames that the load generator sends, and reads the answers to them.
//
// A load generator must not spend its time encoding: every frame is made once, as bytes, and sent again and again. So
// each request has one fixed, non-flexible version here, with a layout in which the fields that vary (correlation id,
// fetch offset) sit at a known place. It is no codec: whoever needs other versions or fields uses codec/api.
//
// Versions in use: Produce 7, Fetch 11, ListOffsets 1, Metadata 4, ApiVersions 0, CreateTopics 2, DeleteTopics 1. Every Apache Kafka from
// 2.3 to 4.x serves them. All sizes are in bytes, and frames include their 4-byte length.
package frames

// API keys of the requests made here.
const (
	KeyProduce      = 0
	KeyFetch        = 1
	KeyListOffsets  = 2
	KeyMetadata     = 3
	KeyAPIVersions  = 18
	KeyCreateTopics = 19
	KeyDeleteTopics = 20
)

// The version in which each request is sent.
const (
	VersionProduce      = 7
	VersionFetch        = 11
	VersionListOffsets  = 1
	VersionMetadata     = 4
	VersionAPIVersions  = 0
	VersionCreateTopics = 2
	VersionDeleteTopics = 1
)

// ClientID is sent with every request.
const ClientID = "kaas-bench"

// Offsets within a frame.
const (
	CorrelationAt = 8 // in a request
	RequestHead   = 4 + 2 + 2 + 4 + 2 + len(ClientID)
	ResponseHead  = 4 + 4 // length and correlation id
)
