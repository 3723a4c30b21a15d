package server

import (
	"testing"

	"kaas/codec/api"
	"kaas/engine/vfs"
	"kaas/engine/vfs/crashfs"
)

// txnState is what DescribeTransactions says of a transactional id: its state, or the error.
func (c *client) txnState(id string) string {
	c.t.Helper()
	var p api.DescribeTransactionsResponse
	c.call(api.KeyDescribeTransactions, 0, &api.DescribeTransactionsRequest{TransactionalIds: []string{id}}, &p)
	if s := p.TransactionStates[0]; s.ErrorCode == api.ErrNone {
		return s.TransactionState
	}
	return p.TransactionStates[0].ErrorCode.String()
}

// overdue begins a transaction whose time is over after a millisecond.
func (c *client) overdue(id string) *txnClient {
	c.t.Helper()
	x := c.producer(id)
	eventually(c.t, "a transaction", func() bool { // its id may expire before it begins
		p := x.tryInit(1)
		x.pid, x.epoch, x.next = p.ProducerId, p.ProducerEpoch, map[int32]int32{}
		return p.ErrorCode == api.ErrNone && x.add("t", 0) == api.ErrNone
	})
	return x
}

// Each of the two searches of the transaction coordinator has its own interval: what is overdue is aborted while ids that have expired are not
// looked for, and the other way round.
func TestIntervalsOfTransactions(t *testing.T) {
	const abort, expire = "transaction.abort.timed.out.transaction.cleanup.interval.ms", "transaction.remove.expired.transaction.cleanup.interval.ms"
	const never = "3600000"
	t.Run("aborts", func(t *testing.T) {
		c := dial(t, broker(t, abort, "1", expire, never, "transactional.id.expiration.ms", "1"))
		c.create("t", 1)
		c.producer("unused")
		x := c.overdue("x")
		eventually(t, "the abort of x", func() bool { return c.txnState("x") == "CompleteAbort" })
		want(t, "a commit of what was aborted", x.end(true), api.ErrProducerFenced)
		want(t, "an id that has expired", c.txnState("unused"), "Empty")
	})
	t.Run("expiry", func(t *testing.T) {
		c := dial(t, broker(t, abort, never, expire, "1", "transactional.id.expiration.ms", "100"))
		c.create("t", 1)
		x := c.overdue("x")
		c.producer("unused")
		eventually(t, "the expiry of an id", func() bool { return c.txnState("unused") == api.ErrTransactionalIdNotFound.String() })
		want(t, "what is overdue", c.txnState("x"), "Ongoing")
		want(t, "its commit", x.end(true), api.ErrNone)
	})
}

// EndTxn waits for markers that cannot be written, as long as kaas.transaction.markers.wait.ms says. Whoever was answered without them is told 51
// by the next transaction until they are there; who waited may begin at once.
func TestMarkersWait(t *testing.T) {
	for _, wait := range []string{"0", "60000"} {
		t.Run(wait, func(t *testing.T) {
			faults := crashfs.Rules("")
			set := func(rules string) {
				if err := faults.Set(rules); err != nil {
					t.Fatal(err)
				}
			}
			b := startWith(t, faults.FS(vfs.OS), t.TempDir(), "kaas.transaction.markers.wait.ms", wait)
			c := dial(t, b)
			c.create("t", 1)
			x := c.producer("x")
			want(t, "add", x.add("t", 0), api.ErrNone)
			want(t, "put", x.put("t", 0, "v"), api.ErrNone)
			set("write of t-0/*.log: ENOSPC; allocate of t-0/*.log: ENOSPC")
			x.send(api.KeyEndTxn, 3, &api.EndTxnRequest{TransactionalId: x.id, ProducerId: x.pid, ProducerEpoch: x.epoch, Committed: true})
			ended := func() api.ErrorCode {
				var p api.EndTxnResponse
				x.receive(api.KeyEndTxn, 3, &p)
				return p.ErrorCode
			}
			if wait == "0" {
				want(t, "EndTxn", ended(), api.ErrNone)
				want(t, "the next transaction", x.add("t", 0), api.ErrConcurrentTransactions)
				set("")
				eventually(t, "the next transaction", func() bool { return x.add("t", 0) == api.ErrNone })
				return
			}
			eventually(t, "a marker that is put off", func() bool { return b.api.Stats().MarkerRetries > 0 })
			want(t, "state", dial(t, b).txnState("x"), "PrepareCommit")
			set("")
			want(t, "EndTxn", ended(), api.ErrNone)
			want(t, "the next transaction", x.add("t", 0), api.ErrNone)
		})
	}
}
