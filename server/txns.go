package server

import (
	"kaas/codec/batch"
	"kaas/server/config"
	"kaas/server/coordinator"
	"kaas/server/topics"
	"kaas/server/txn"
)

// openTxns makes the transaction coordinator. It loads what __transaction_state holds once there is who writes markers (openPorts): decided
// transactions go on then.
func (b *Broker) openTxns() error {
	c := b.cfg
	tc := &txn.Config{
		MaxTimeout:   config.Millis(c.Int("transaction.max.timeout.ms")),
		Expiration:   config.Millis(c.Int("transactional.id.expiration.ms")),
		AnswerWithin: config.Millis(c.Int("kaas.transaction.markers.wait.ms")),
		Markers:      func(w txn.MarkerWork) bool { return b.api.WriteMarkers(w) },
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
		Ticks: []coordinator.Tick[*txn.Shard]{
			{Every: config.Millis(c.Int("transaction.abort.timed.out.transaction.cleanup.interval.ms")), Do: (*txn.Shard).AbortOverdue},
			{Every: config.Millis(c.Int("transaction.remove.expired.transaction.cleanup.interval.ms")), Do: (*txn.Shard).Expire},
		},
		Logger: log,
	})
	return nil
}
