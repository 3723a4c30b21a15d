package api

import "kaas/codec/api"

// ListPartitionReassignments, key 46, v0.
//
// One broker has nowhere to move a partition to: the list is always empty.
func listPartitionReassignments(*call, *api.ListPartitionReassignmentsRequest, *api.ListPartitionReassignmentsResponse) {
}
