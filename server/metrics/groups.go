package metrics

import (
	"sync"
	"time"

	"kaas/server/coordinator"
	"kaas/server/group"
	"kaas/server/txn"
)

// shardsWait is how long a scrape waits for the shards' numbers; they take microseconds where nothing is wrong.
const shardsWait = 100 * time.Millisecond

// groupsOf asks the shards what they hold.
func groupsOf(rt *coordinator.Runtime[*group.Shard]) group.Totals {
	return totalsIn(rt, group.NewTotals(), (*group.Shard).AddTo)
}

// txnsOf asks the shards what they hold.
func txnsOf(rt *coordinator.Runtime[*txn.Shard]) txn.Totals {
	return totalsIn(rt, txn.Totals{}, (*txn.Shard).AddTo)
}

// totalsIn has every shard add what it holds. One that does not answer in time is left out: a scrape waits for nobody.
func totalsIn[S coordinator.State, T any](rt *coordinator.Runtime[S], total T, add func(s S, total *T)) T {
	var mu sync.Mutex // guards total, left and late
	left, late := 0, false
	all := make(chan struct{}) // closed when nobody is left
	answer := func(add func()) {
		mu.Lock()
		defer mu.Unlock()
		if late {
			return
		}
		add()
		if left--; left == 0 {
			close(all)
		}
	}
	asked := rt.Ask(func(s S, _ time.Time) coordinator.Outcome {
		answer(func() { add(s, &total) })
		return coordinator.Outcome{}
	}, func(error) { answer(func() {}) })
	answer(func() { left += asked + 1 })
	timeout := time.NewTimer(shardsWait)
	defer timeout.Stop()
	select {
	case <-all:
	case <-timeout.C:
	}
	mu.Lock()
	defer mu.Unlock()
	late = true
	return total
}
