package api

import (
	"slices"
	"strings"
	"sync"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/txn"
)

// ListTransactions, key 66, v0.
//
// While some transactional ids are still being loaded the answer is 14, without any. Names of states that there are not are told, and match
// nothing.

// serveListTransactions asks every shard.
func serveListTransactions(c *call) {
	c = c.detach()
	q := new(api.ListTransactionsRequest)
	if !c.decode(q) {
		return
	}
	c.hold()
	l := &txnList{c: c}
	l.p.UnknownStateFilters = txn.UnknownStates(q.StateFilters)
	l.asked(c.s.txns.Ask(c.guardedTxn(func(s *txn.Shard, _ time.Time) coordinator.Outcome {
		list := s.List(q)
		return coordinator.Outcome{Done: func(err error) { l.add(list, err) }}
	}), func(err error) { l.add(nil, err) }))
}

// txnList gathers what the shards list.
type txnList struct {
	c *call

	mu   sync.Mutex // guards what follows
	left int        // shards that have not answered; below what it is while the asking goes on
	p    api.ListTransactionsResponse
}

// asked says how many shards there are.
func (l *txnList) asked(shards int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left += shards
	l.finish()
}

// add takes a shard's list, or why there is none: of a shard that is not there nothing is said, as of one of another broker's.
func (l *txnList) add(list []api.ListTransactionsResponseTransactionState, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left--
	if code := txn.Refusal(err); code == api.ErrCoordinatorLoadInProgress {
		l.p.ErrorCode = code
	}
	l.p.TransactionStates = append(l.p.TransactionStates, list...)
	l.finish()
}

// finish answers when every shard has.
func (l *txnList) finish() {
	if l.left != 0 {
		return
	}
	if l.p.ErrorCode != api.ErrNone {
		l.p.TransactionStates = nil
	}
	slices.SortFunc(l.p.TransactionStates, func(a, b api.ListTransactionsResponseTransactionState) int {
		return strings.Compare(a.TransactionalId, b.TransactionalId)
	})
	l.c.answer(&l.p)
}
