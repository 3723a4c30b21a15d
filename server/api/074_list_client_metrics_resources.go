package api

import "kaas/codec/api"

// ListClientMetricsResources, key 74, v0 (KIP-1000).
//
// The list is always empty: see IncrementalAlterConfigs, which refuses to make one.
func listClientMetricsResources(*call, *api.ListClientMetricsResourcesRequest, *api.ListClientMetricsResourcesResponse) {
}
