package commit

import (
	"sync/atomic"
	"time"
)

// pace decides how long a round may wait for company.
//
// Without it writers in a closed loop split in two: those whose round has just ended append one by one, the first of them
// starts a round alone, the others wait for the next: 1, 63, 1, 63. So a round waits for as many waiters as there were when
// the last one ended. Waiting for all is worth it while it takes less than a sync: halves alternate otherwise. It waits for a
// share of a round at once, and longer only if those who came so far say that the rest will be there in time. When nobody
// comes, because the writers are not in a closed loop, the wait is skipped for more and more rounds.
type pace struct {
	usual  time.Duration // moving average of a round
	expect int64
	skip   int // rounds to go without waiting
	misses int
}

const (
	gatherPercent = 40 // of a round, in any case
	gatherMore    = 80 // of a round, if all will have come by then
	missesMax     = 4  // at most 2^4 rounds are skipped
)

func (p *pace) ended(took time.Duration, peak int64) {
	if p.usual == 0 {
		p.usual = took
	}
	p.usual += (took - p.usual) / 8
	p.expect = peak
}

// gather waits until as many wait as are expected, or for too long. wait blocks until that many do, or for that time.
func (p *pace) gather(waiting *atomic.Int64, wait func(waiting *atomic.Int64, target int64, most time.Duration)) {
	before := waiting.Load()
	need := p.expect - before
	if p.expect < 2 || need <= 0 {
		return
	}
	if p.skip > 0 {
		p.skip--
		return
	}
	limit, more := p.usual*gatherPercent/100, p.usual*gatherMore/100
	start := time.Now()
	wait(waiting, p.expect, limit)
	got := waiting.Load() - before
	if took := time.Since(start); got < need && got > 0 && took*time.Duration(need)/time.Duration(got) < more {
		wait(waiting, p.expect, more-took)
		got = waiting.Load() - before
	}
	switch {
	case got >= need:
		p.misses = 0
	case got*8 < need:
		p.misses = min(p.misses+1, missesMax)
		p.skip = 1 << p.misses
	}
}
