package txn

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
)

// Bounds of one batch; what is more follows in further ones, so that others are served in between.
const (
	abortsPerBatch     = 100
	abortBytesPerBatch = 256 << 10 // a bound of what is in one before the last record
	tombstonesPerBatch = 1000
)

func compareIDs(a, b string) int { return strings.Compare(a, b) }

// AbortOverdue aborts the transactions that are open for longer than their producer's timeout, which loses its epoch; a batch of them, and then
// the next. It is to be given every transaction.abort.timed.out.transaction.cleanup.interval.ms.
func (s *Shard) AbortOverdue(now time.Time) coordinator.Outcome {
	ms := now.UnixMilli()
	all := s.sorted(func(t *txn) bool { return t.status == Ongoing && t.started+int64(t.timeoutMs) < ms })
	if len(all) == 0 {
		return coordinator.Outcome{}
	}
	n, size := 0, 0
	for n < len(all) && n < abortsPerBatch && size < abortBytesPerBatch {
		size += sizeOf(all[n].open.partitions)
		n++
	}
	more := n < len(all)
	return s.decide(all[:n], PrepareAbort, true, now, func(err error) {
		switch {
		case err != nil:
			s.log.Warn("transactions that timed out could not be aborted", slog.Int("transactions", len(all)), slog.Any("error", err))
			return
		case more:
			s.timers.After(0, s.AbortOverdue)
		}
		for _, t := range all[:n] {
			s.log.Info("a transaction timed out and is aborted", slog.String("id", t.id), slog.Int64("producer", t.producerID))
		}
	})
}

// unused says that nobody has used a transactional id for long, and that it has no open transaction.
func (s *Shard) unused(t *txn, now time.Time) bool {
	return !t.status.isOpen() && t.updated <= now.Add(-s.cfg.Expiration).UnixMilli()
}

// Expire removes the transactional ids that have not been used for Config.Expiration and have no open transaction; a batch of them, and then the
// next. It is to be given every transaction.remove.expired.transaction.cleanup.interval.ms.
func (s *Shard) Expire(now time.Time) coordinator.Outcome {
	var ids []string
	for id, t := range s.txns {
		if s.unused(t, now) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return s.remove(ids, 0, now)
}

// remove writes the tombstones of ids that are still unused, a batch of them.
func (s *Shard) remove(ids []string, removed int, now time.Time) coordinator.Outcome {
	if len(ids) == 0 {
		if removed > 0 {
			s.log.Info("transactional ids expired", slog.Int("ids", removed))
		}
		return coordinator.Outcome{}
	}
	n := min(len(ids), tombstonesPerBatch)
	entries := make([]coordinator.Entry, 0, n)
	for _, id := range ids[:n] {
		if t := s.txns[id]; t != nil && s.unused(t, now) {
			entries = append(entries, tombstone(id))
		}
	}
	return coordinator.Outcome{Write: coordinator.Write{Entries: entries, Split: true}, Done: func(err error) {
		if err != nil {
			s.log.Warn("transactional ids could not be removed", slog.Int("ids", len(ids)), slog.Any("error", err))
			return
		}
		s.timers.After(0, func(now time.Time) coordinator.Outcome { return s.remove(ids[n:], removed+len(entries), now) })
	}}
}

// Totals count what shards hold, by state.
type Totals [statuses]int

// AddTo adds what this shard holds.
func (s *Shard) AddTo(t *Totals) {
	for _, x := range s.txns {
		t[x.status]++
	}
}

// Describe serves one id of DescribeTransactions, key 65. The caller sends it in the Done of an Outcome that writes nothing.
func (s *Shard) Describe(id string) api.DescribeTransactionsResponseTransactionState {
	p := api.DescribeTransactionsResponseTransactionState{TransactionalId: cloned(id)}
	t := s.txns[id]
	switch {
	case id == "":
		p.ErrorCode = api.ErrInvalidRequest
		return p
	case t == nil:
		p.ErrorCode = api.ErrTransactionalIdNotFound
		return p
	}
	p.TransactionState, p.TransactionTimeoutMs, p.TransactionStartTimeMs = t.status.String(), t.timeoutMs, t.started
	p.ProducerId, p.ProducerEpoch = t.producerID, t.epoch
	if t.open == nil {
		return p
	}
	all := t.open.partitions
	if t.status.prepared() {
		all = t.open.left
	}
	for i, q := range all {
		if i == 0 || q.Topic != all[i-1].Topic {
			p.Topics = append(p.Topics, api.DescribeTransactionsResponseTopicData{Topic: q.Topic})
		}
		last := &p.Topics[len(p.Topics)-1]
		last.Partitions = append(last.Partitions, q.Index)
	}
	return p
}

// UnknownStates are the state filters of a ListTransactions that name no state. They match nothing.
func UnknownStates(filters []string) []string {
	var unknown []string
	for _, f := range filters {
		if !slices.Contains(statusNames[:], f) {
			unknown = append(unknown, f)
		}
	}
	return unknown
}

// List serves this shard's part of ListTransactions, key 66, by id. The caller sends it in the Done of an Outcome that writes nothing.
func (s *Shard) List(q *api.ListTransactionsRequest) []api.ListTransactionsResponseTransactionState {
	var all []api.ListTransactionsResponseTransactionState
	for id, t := range s.txns {
		name := t.status.String()
		if len(q.ProducerIdFilters) > 0 && !slices.Contains(q.ProducerIdFilters, t.producerID) ||
			len(q.StateFilters) > 0 && !slices.Contains(q.StateFilters, name) {
			continue
		}
		all = append(all, api.ListTransactionsResponseTransactionState{TransactionalId: id, ProducerId: t.producerID, TransactionState: name})
	}
	slices.SortFunc(all, func(a, b api.ListTransactionsResponseTransactionState) int {
		return strings.Compare(a.TransactionalId, b.TransactionalId)
	})
	return all
}
