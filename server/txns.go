package server

import (
	"time"

	"kaas/codec/batch"
	"kaas/server/config"
	"kaas/server/coordinator"
	"kaas/server/topics"
	"kaas/server/txn"
)

// endTxnWait bounds how long the answer to EndTxn waits for markers. They take microseconds, or a group commit; only what is wrong with a log
// takes longer, and then the producer is told that the decision is made, and 51 until the markers are there.
const endTxnWait = time.Second

// openTxns makes the transaction coordinator. It loads what __transaction_state holds once there is who writes markers (openPorts): decided
// transactions go on then.
func (b *Broker) openTxns() error {
	c := b.cfg
	tc := &txn.Config{
		MaxTimeout:     config.Millis(c.Int("transaction.max.timeout.ms")),
		Expiration:     config.Millis(c.Int("transactional.id.expiration.ms")),
		ExpiryInterval: config.Millis(c.Int("transaction.remove.expired.transaction.cleanup.interval.ms")),
		AnswerWithin:   endTxnWait,
		Markers:        func(w txn.MarkerWork) { b.api.WriteMarkers(w) },
	}
	log := b.levels.Logger("kaas.transactions")
	find := func() *topics.Topic { return b.topics.ByName(topics.TransactionsTopic) }
	b.txns = coordinator.New(coordinator.Config[*txn.Shard]{
		Topic: find,
		New: func(shard int32, timers coordinator.Timers) *txn.Shard {
			epoch := int32(0)
			if t := find(); t != nil && t.Partition(shard) != nil {
				epoch = t.Partition(shard).LeaderEpoch
			}
			return txn.New(tc, epoch, timers, log)
		},
		Codec:     batch.CodecNone,
		LoadBytes: int(c.Int("transaction.state.log.load.buffer.size")),
		Every:     config.Millis(c.Int("transaction.abort.timed.out.transaction.cleanup.interval.ms")),
		Tick:      (*txn.Shard).Tick,
		Logger:    log,
	})
	return nil
}
