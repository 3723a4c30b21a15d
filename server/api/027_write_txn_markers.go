package api

import (
	"sync/atomic"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/txn"
)

// WriteTxnMarkers, key 27, v0-v1. v1 flexible.
//
// It ends a transaction in the partitions named, whatever its coordinator says: Apache's coordinator uses it, here administrators do alone, to abort what
// hangs (kafka-transactions abort). A producer that the partition does not know gets its marker all the same.
func writeTxnMarkers(c *call) {
	c = c.detach()
	q, p := new(api.WriteTxnMarkersRequest), new(api.WriteTxnMarkersResponse)
	if !c.decode(q) {
		return
	}
	c.hold()
	var all []*marker
	var left atomic.Int32
	p.Markers = make([]api.WriteTxnMarkersResponseWritableTxnMarkerResult, len(q.Markers))
	for i := range q.Markers {
		m, out := &q.Markers[i], &p.Markers[i]
		out.ProducerId = m.ProducerId
		out.Topics = make([]api.WriteTxnMarkersResponseWritableTxnMarkerTopicResult, len(m.Topics))
		for j := range m.Topics {
			t, to := &m.Topics[j], &out.Topics[j]
			to.Name = t.Name
			to.Partitions = make([]api.WriteTxnMarkersResponseWritableTxnMarkerPartitionResult, len(t.PartitionIndexes))
			for k, index := range t.PartitionIndexes {
				result := &to.Partitions[k]
				result.PartitionIndex = index
				all = append(all, &marker{w: &c.s.markers, partition: txn.Partition{Topic: t.Name, Index: index},
					producer: coordinator.Producer{ID: m.ProducerId, Epoch: m.ProducerEpoch}, epoch: m.CoordinatorEpoch, commit: m.TransactionResult,
					owner: markerTold(func(err error) {
						result.ErrorCode = markerError(err)
						if left.Add(-1) == 0 {
							c.answer(p)
						}
					})})
			}
		}
	}
	if len(all) == 0 {
		c.answer(p)
		return
	}
	left.Store(int32(len(all)))
	c.s.markers.submit(all)
}

// markerTold is a markerOwner for a single marker.
type markerTold func(error)

func (f markerTold) marked(_ *marker, err error) { f(err) }
