package metrics

import (
	"sync"
	"time"

	"kaas/server/coordinator"
	"kaas/server/group"
)

// groupsWait is how long a scrape waits for the shards' numbers; they take microseconds where nothing is wrong.
const groupsWait = 100 * time.Millisecond

// groupsOf asks the shards what they hold. One that does not answer in time is left out: a scrape waits for nobody.
func groupsOf(rt *coordinator.Runtime[*group.Shard]) group.Totals {
	var mu sync.Mutex // guards total, left and late
	total, left, late := group.NewTotals(), 0, false
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
	asked := rt.Ask(func(s *group.Shard, _ time.Time) coordinator.Outcome {
		answer(func() { s.AddTo(&total) })
		return coordinator.Outcome{}
	}, func(error) { answer(func() {}) })
	answer(func() { left += asked + 1 })
	timeout := time.NewTimer(groupsWait)
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
