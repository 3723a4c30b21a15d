package commit

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// log is an owner without a disk: written is what a write said, and a sync blocks until the test lets it.
type log struct {
	item      Item[*log]
	written   atomic.Int64
	published atomic.Int64
	failed    atomic.Pointer[error]
}

type group struct {
	*Group[*log]
	syncs atomic.Int64
	gate  chan error // one answer for each sync
}

func newGroup(t *testing.T, threads int) *group {
	g := &group{gate: make(chan error)}
	g.Group = New(Config[*log]{
		Threads: threads,
		Sync: func(l *log) (int64, error) {
			end := l.written.Load()
			g.syncs.Add(1)
			return end, <-g.gate
		},
		Publish: func(l *log, end int64, err error) {
			l.published.Store(end)
			if err != nil {
				l.failed.Store(&err)
			}
		},
	})
	t.Cleanup(func() {
		close(g.gate) // every further sync succeeds
		g.Close()
	})
	return g
}

func (g *group) newLog() *log {
	l := &log{}
	l.item.Init(l, 0)
	return l
}

func (g *group) write(l *log, end int64) {
	l.written.Store(end)
	g.Schedule(&l.item)
}

// wait registers a waiter that must not be done yet.
func (g *group) wait(t *testing.T, l *log, end int64) chan error {
	t.Helper()
	f := make(flushed, 1)
	if done, err := g.Await(&l.item, end, f); done || err != nil {
		t.Fatalf("Await(%d) = %v, %v", end, done, err)
	}
	return f
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

var errDisk = errors.New("disk is gone")

// TestOneSyncForMany: all that was written before a sync began is answered by it, and nothing written after.
func TestOneSyncForMany(t *testing.T) {
	g := newGroup(t, 1)
	l := g.newLog()
	g.write(l, 1)
	first := g.wait(t, l, 1)
	until(t, "first sync", func() bool { return g.syncs.Load() == 1 })
	var rest []chan error
	for end := int64(2); end <= 100; end++ {
		g.write(l, end)
		rest = append(rest, g.wait(t, l, end))
	}
	g.gate <- nil
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if d := l.item.Durable(); d != 1 || l.published.Load() != 1 {
		t.Errorf("durable %d, published %d after the first sync", d, l.published.Load())
	}
	for _, w := range rest {
		if len(w) != 0 {
			t.Fatal("answered by a sync that began before the write")
		}
	}
	g.gate <- nil
	for _, w := range rest {
		if err := <-w; err != nil {
			t.Fatal(err)
		}
	}
	if n := g.syncs.Load(); n != 2 || l.item.Durable() != 100 {
		t.Errorf("%d syncs, durable %d", n, l.item.Durable())
	}
	if done, err := g.Await(&l.item, 100, nil); !done || err != nil {
		t.Errorf("Await of what is durable: %v %v", done, err)
	}
}

// TestFailedSyncPoisons: waiters and later callers get the error, and the item is not synced again.
func TestFailedSyncPoisons(t *testing.T) {
	g := newGroup(t, 1)
	bad, good := g.newLog(), g.newLog()
	g.write(bad, 5)
	w := g.wait(t, bad, 5)
	g.gate <- errDisk
	if err := <-w; err != errDisk {
		t.Errorf("waiter got %v", err)
	}
	if _, err := g.Await(&bad.item, 5, nil); err != errDisk || bad.item.Err() != errDisk || *bad.failed.Load() != errDisk {
		t.Errorf("later: %v, %v", err, bad.item.Err())
	}
	if bad.item.Durable() != 0 || bad.published.Load() != 0 {
		t.Errorf("durable %d, published %d", bad.item.Durable(), bad.published.Load())
	}
	before := g.syncs.Load()
	g.write(bad, 6)
	g.write(good, 1)
	ok := g.wait(t, good, 1)
	g.gate <- nil
	if err := <-ok; err != nil {
		t.Errorf("another item: %v", err)
	}
	if n := g.syncs.Load() - before; n != 1 {
		t.Errorf("%d syncs, the poisoned item among them", n)
	}
}

// TestPoisonDuringSync: an item that is poisoned while it is synced does not become durable.
func TestPoisonDuringSync(t *testing.T) {
	g := newGroup(t, 1)
	l := g.newLog()
	g.write(l, 1)
	w := g.wait(t, l, 1)
	until(t, "sync", func() bool { return g.syncs.Load() == 1 })
	g.Poison(&l.item, errDisk)
	if err := <-w; err != errDisk {
		t.Errorf("waiter got %v", err)
	}
	g.gate <- nil
	g.write(g.newLog(), 1)
	g.gate <- nil // the next round has begun, so the first is over
	if l.item.Durable() != 0 || l.published.Load() != 0 {
		t.Errorf("durable %d, published %d", l.item.Durable(), l.published.Load())
	}
}

// TestSyncsTogether: the items of a round are synced side by side, at most Threads of them.
func TestSyncsTogether(t *testing.T) {
	const threads, items = 4, 10
	g := newGroup(t, threads)
	plug := g.newLog()
	g.write(plug, 1)
	until(t, "plug", func() bool { return g.syncs.Load() == 1 })
	var waits []chan error
	for range items {
		l := g.newLog()
		g.write(l, 1)
		waits = append(waits, g.wait(t, l, 1))
	}
	g.gate <- nil
	until(t, "all threads in a sync", func() bool { return g.syncs.Load() == 1+threads })
	for range 1000 {
		runtime.Gosched()
	}
	if n := g.syncs.Load(); n != 1+threads {
		t.Errorf("%d syncs at once, bound %d", n-1, threads)
	}
	for range items {
		g.gate <- nil
	}
	for _, w := range waits {
		if err := <-w; err != nil {
			t.Error(err)
		}
	}
}

// TestGather: writers in a closed loop end up in one round, not in halves. Syncs take as long as a flag says, so that no
// clock decides.
func TestGather(t *testing.T) {
	var g gate
	g.open()
	defer g.close()
	p := pace{usual: time.Hour, expect: 64}
	var waiting atomic.Int64
	waiting.Store(1)
	go func() {
		for range 63 {
			g.passed(waiting.Add(1))
			runtime.Gosched()
		}
	}()
	p.gather(&waiting, g.wait)
	if n := waiting.Load(); n != 64 {
		t.Errorf("round began with %d of 64", n)
	}
	// Nobody comes: skipped for longer and longer, and never for one that waits alone.
	p = pace{usual: 1, expect: 64}
	waiting.Store(1)
	var skips []int
	for range 4 {
		p.gather(&waiting, g.wait)
		skips = append(skips, p.skip)
		p.skip = 0
	}
	if skips[0] != 2 || skips[3] != 16 {
		t.Errorf("rounds skipped: %v", skips)
	}
	p = pace{usual: time.Hour, expect: 1}
	p.gather(&waiting, g.wait)
	p = pace{usual: time.Hour, expect: 64, skip: 1}
	p.gather(&waiting, g.wait)
	if p.skip != 0 {
		t.Errorf("skip %d", p.skip)
	}
}

// TestFlushAndClose: Flush returns when its end is durable, Close after pending rounds.
func TestFlushAndClose(t *testing.T) {
	var syncs atomic.Int64
	var rounds, released atomic.Int64
	g := New(Config[*log]{
		Threads: 2,
		Sync:    func(l *log) (int64, error) { syncs.Add(1); return l.written.Load(), nil },
		Publish: func(l *log, end int64, err error) { l.published.Store(end) },
		OnRound: func(_, n int, _ time.Duration) { rounds.Add(1); released.Add(int64(n)) },
	})
	l := &log{}
	l.item.Init(l, 10)
	l.written.Store(20)
	if err := g.Flush(&l.item, 20); err != nil || l.published.Load() != 20 {
		t.Errorf("flush: %v, published %d", err, l.published.Load())
	}
	l.written.Store(30)
	g.Schedule(&l.item)
	g.Close()
	if l.item.Durable() != 30 || released.Load() != 1 || rounds.Load() != syncs.Load() {
		t.Errorf("durable %d, %d released in %d rounds of %d syncs", l.item.Durable(), released.Load(), rounds.Load(), syncs.Load())
	}
	g.Schedule(&l.item)
	g.Close()
}

// TestManyWriters runs writers on several items against a sync that checks that ends never pass what was written.
func TestManyWriters(t *testing.T) {
	g := New(Config[*log]{
		Threads: 4,
		Sync:    func(l *log) (int64, error) { end := l.written.Load(); runtime.Gosched(); return end, nil },
		Publish: func(l *log, end int64, err error) {
			if end < l.published.Load() || end > l.written.Load() {
				t.Errorf("published %d after %d, written %d", end, l.published.Load(), l.written.Load())
			}
			l.published.Store(end)
		},
	})
	var wg sync.WaitGroup
	for range 8 {
		l := &log{}
		l.item.Init(l, 0)
		var mu sync.Mutex
		for range 8 {
			wg.Go(func() {
				for range 200 {
					mu.Lock()
					end := l.written.Add(1)
					g.Schedule(&l.item)
					mu.Unlock()
					w := make(flushed, 1)
					done, err := g.Await(&l.item, end, w)
					if !done && err == nil {
						err = <-w
					}
					if err != nil || l.item.Durable() < end {
						t.Errorf("end %d, durable %d, %v", end, l.item.Durable(), err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	g.Close()
}

func TestAllocations(t *testing.T) {
	g := New(Config[*log]{
		Threads: 1,
		Sync:    func(l *log) (int64, error) { return l.written.Load(), nil },
		Publish: func(l *log, end int64, err error) {},
	})
	defer g.Close()
	l := &log{}
	l.item.Init(l, 0)
	w := make(flushed, 1)
	if n := testing.AllocsPerRun(1000, func() {
		end := l.written.Add(1)
		g.Schedule(&l.item)
		if done, _ := g.Await(&l.item, end, w); !done {
			<-w
		}
	}); n > 0 {
		t.Errorf("%v allocations for each write", n)
	}
}

// TestNotNow: who waits for a sync that did not take place is told so; the next one makes all of it durable.
func TestNotNow(t *testing.T) {
	g := newGroup(t, 1)
	l := g.newLog()
	g.write(l, 5)
	w := g.wait(t, l, 5)
	g.gate <- fmt.Errorf("no room: %w", ErrNotNow)
	if err := <-w; !errors.Is(err, ErrNotNow) || l.item.Err() != nil || l.item.Durable() != 0 {
		t.Errorf("told %v; item %v, durable %d", err, l.item.Err(), l.item.Durable())
	}
	if done, err := g.Await(&l.item, 5, nil); done || !errors.Is(err, ErrNotNow) {
		t.Errorf("who comes after it: %v, %v", done, err)
	}
	g.write(l, 6)
	w = g.wait(t, l, 5)
	g.gate <- nil
	if err := <-w; err != nil || l.item.Durable() != 6 {
		t.Errorf("told %v, durable %d", err, l.item.Durable())
	}
}

// TestScheduleAll: items scheduled together are in one round, also those that one of them would have begun by itself, and none twice.
func TestScheduleAll(t *testing.T) {
	var rounds, items atomic.Int64
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	g := New(Config[*log]{
		Threads: 1,
		Sync: func(l *log) (int64, error) {
			once.Do(func() { close(held); <-release })
			return 1, nil
		},
		Publish: func(*log, int64, error) {},
		OnRound: func(n, _ int, _ time.Duration) { rounds.Add(1); items.Add(int64(n)) },
	})
	logs := make([]log, 50)
	var all []*Item[*log]
	for i := range logs {
		l := &logs[i]
		l.item.Init(l, 0)
		all = append(all, &l.item, &l.item)
	}
	g.Schedule(&logs[0].item)
	<-held
	g.ScheduleAll(all)
	g.ScheduleAll(all)
	close(release)
	g.Close()
	if rounds.Load() != 2 || items.Load() != 1+50 {
		t.Errorf("%d rounds of %d items", rounds.Load(), items.Load())
	}
	g.ScheduleAll(all) // of a closed group: no round comes
	if logs[1].item.queued.Load() {
		t.Error("queued after the close")
	}
}
