package api

import (
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/topics"
	"kaas/server/txn"
)

// AddPartitionsToTxn, key 24, v0-v4. v2 error 90 in place of 47; v3 flexible; v4, from broker to broker, several transactions in one request, and
// the question whether they have the partitions already (KIP-890).
//
// One partition that does not exist (3) or is of an internal topic (29) keeps the others out (55).
//
// Deviation: v4 without any transaction is answered. Apache leaves it without an answer.
func addPartitionsToTxn(c *call) {
	c = c.detach()
	q := new(api.AddPartitionsToTxnRequest)
	if !c.decode(q) {
		return
	}
	c.hold()
	p := new(api.AddPartitionsToTxnResponse)
	if c.version() < 4 {
		add := addition{id: q.V3AndBelowTransactionalId, producer: coordinator.Producer{ID: q.V3AndBelowProducerId, Epoch: q.V3AndBelowProducerEpoch},
			topics: q.V3AndBelowTopics}
		c.addPartitions(&add, func(r []addedTopic) {
			p.ResultsByTopicV3AndBelow = r
			c.answer(p)
		})
		return
	}
	p.ResultsByTransaction = make([]api.AddPartitionsToTxnResponseAddPartitionsToTxnResult, len(q.Transactions))
	all := c.parts(len(q.Transactions), func() { c.answer(p) })
	for i := range q.Transactions {
		t, out := &q.Transactions[i], &p.ResultsByTransaction[i]
		out.TransactionalId = t.TransactionalId
		add := addition{id: t.TransactionalId, producer: coordinator.Producer{ID: t.ProducerId, Epoch: t.ProducerEpoch}, topics: t.Topics, verify: t.VerifyOnly}
		c.addPartitions(&add, func(r []addedTopic) {
			out.TopicResults = r
			all.done()
		})
	}
}

// addition is what is to be added to one transaction, or to be found in it.
type addition struct {
	id       string
	producer coordinator.Producer
	topics   []api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic
	verify   bool
}

type (
	addedTopic     = api.AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult
	addedPartition = api.AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult
)

// addPartitions adds to one transaction; reply is called once.
func (c *call) addPartitions(a *addition, reply func([]addedTopic)) {
	a.topics = mergeNamed(a.topics, func(t *api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic) string { return t.Name },
		func(into, t *api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic) {
			into.Partitions = append(into.Partitions, t.Partitions...)
		})
	results, fine := c.addable(a)
	if !fine {
		reply(results)
		return
	}
	all := func(code api.ErrorCode) {
		code = txn.ForVersion(api.KeyAddPartitionsToTxn, c.version(), code)
		for i := range results {
			for j := range results[i].ResultsByPartition {
				results[i].ResultsByPartition[j].PartitionErrorCode = code
			}
		}
		reply(results)
	}
	c.onTxnShard(a.id, func(s *txn.Shard, now time.Time) (o coordinator.Outcome) {
		defer c.guard(&o)
		if !a.verify {
			return s.AddPartitions(a.id, a.producer, a.topics, now, all)
		}
		return s.Verify(a.id, a.producer, partitionsOf(results), func(code api.ErrorCode, each []api.ErrorCode) {
			if code != api.ErrNone {
				all(code)
				return
			}
			k := 0
			for i := range results {
				for j := range results[i].ResultsByPartition {
					results[i].ResultsByPartition[j].PartitionErrorCode = each[k]
					k++
				}
			}
			reply(results)
		})
	}, func(err error) { all(txn.Refusal(err)) })
}

// addable makes the result of each partition, and tells whether all of them may be added.
func (c *call) addable(a *addition) (results []addedTopic, fine bool) {
	fine = true
	for i := range a.topics {
		t := &a.topics[i]
		t.Partitions = firstOfEach(t.Partitions)
		if len(t.Partitions) == 0 {
			continue
		}
		out := api.Next(&results)
		out.Name = t.Name
		topic := c.s.topics.ByName(t.Name)
		for _, index := range t.Partitions {
			p := addedPartition{PartitionIndex: index}
			switch {
			case c.version() < 4 && topics.IsInternal(t.Name):
				p.PartitionErrorCode = api.ErrTopicAuthorizationFailed
			case topic == nil || topic.Partition(index) == nil:
				p.PartitionErrorCode = api.ErrUnknownTopicOrPartition
			}
			fine = fine && p.PartitionErrorCode == api.ErrNone
			out.ResultsByPartition = append(out.ResultsByPartition, p)
		}
	}
	if fine {
		return results, true
	}
	for i := range results {
		for j := range results[i].ResultsByPartition {
			if p := &results[i].ResultsByPartition[j]; p.PartitionErrorCode == api.ErrNone {
				p.PartitionErrorCode = api.ErrOperationNotAttempted
			}
		}
	}
	return results, false
}

// partitionsOf lists what results are about.
func partitionsOf(results []addedTopic) (all []txn.Partition) {
	for i := range results {
		for j := range results[i].ResultsByPartition {
			all = append(all, txn.Partition{Topic: results[i].Name, Index: results[i].ResultsByPartition[j].PartitionIndex})
		}
	}
	return all
}
