package api

import (
	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/engine"
	"kaas/server/topics"
)

// DescribeProducers, key 61, v0.
//
// It lists what the partition's log knows of producers, in order of their ids.
func describeProducers(c *call, q *api.DescribeProducersRequest, p *api.DescribeProducersResponse) {
	for i := range q.Topics {
		t, out := &q.Topics[i], api.Next(&p.Topics)
		out.Name = t.Name
		for _, index := range t.PartitionIndexes {
			o := api.Next(&out.Partitions)
			o.Default()
			o.PartitionIndex = index
			o.ActiveProducers = []api.DescribeProducersResponseProducerState{}
			if err := topics.CheckName(t.Name); err != nil {
				o.ErrorCode, o.ErrorMessage = err.Code, wire.Some(err.Message)
				continue
			}
			c.describeProducersOf(t.Name, o)
		}
	}
}

// describeProducersOf lists the producers of one partition.
func (c *call) describeProducersOf(name string, o *api.DescribeProducersResponsePartitionResponse) {
	part, code := loaded(c.s.topics.ByName(name), o.PartitionIndex)
	if code != api.ErrNone {
		o.ErrorCode, o.ErrorMessage = code, wire.Some(code.Message())
		return
	}
	for _, s := range part.Log.Producers() {
		o.ActiveProducers = append(o.ActiveProducers, producerState(&s))
	}
}

func producerState(s *engine.ProducerState) api.DescribeProducersResponseProducerState {
	return api.DescribeProducersResponseProducerState{ProducerId: s.ID, ProducerEpoch: int32(s.Epoch), LastSequence: s.LastSequence,
		LastTimestamp: s.LastTimestamp, CoordinatorEpoch: s.CoordinatorEpoch, CurrentTxnStartOffset: s.TxnFirst}
}
