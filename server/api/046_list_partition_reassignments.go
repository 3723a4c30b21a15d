package api

import (
	"kaas/codec/api"
	"kaas/codec/wire"
)

// ListPartitionReassignments, key 46, v0.
//
// One broker has nowhere to move a partition to: the list is always empty.
func listPartitionReassignments(_ *call, _ *api.ListPartitionReassignmentsRequest, p *api.ListPartitionReassignmentsResponse) {
	p.ErrorMessage = wire.NullString{}
}
