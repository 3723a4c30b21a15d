package netio

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// unstarted is a loop that does not run, with a clock that the test moves.
func unstarted(t *testing.T, cfg Config) *Loop {
	t.Helper()
	s, err := New(cfg, &hooks{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.loops[0].end() })
	return s.loops[0]
}

// Timers against a model: due ones are called in the order of their times, once;
// stopped and moved ones are not called at their old time.
func TestTimersAgainstModel(t *testing.T) {
	l := unstarted(t, Config{Loops: 1})
	rng := rand.New(rand.NewPCG(7, 7))
	timers := make([]Timer, 200)
	due := map[int]int64{}
	for i := range timers {
		timers[i].Fn = func() {
			if at, ok := due[i]; !ok || at > l.now || timers[i].Set() {
				t.Errorf("timer %d called at %d, due %d (set: %v)", i, l.now, at, ok)
			}
			for _, at := range due {
				if at < due[i] {
					t.Errorf("timer due at %d called before one due at %d", due[i], at)
				}
			}
			delete(due, i)
		}
	}
	for range 5000 {
		i := rng.IntN(len(timers))
		switch rng.IntN(4) {
		case 0:
			l.StopTimer(&timers[i])
			delete(due, i)
		case 1:
			l.now += int64(rng.IntN(20))
			l.runTimers()
			for i, at := range due {
				if at <= l.now {
					t.Fatalf("timer %d was due at %d, now %d", i, at, l.now)
				}
			}
		default:
			due[i] = l.now + int64(rng.IntN(500))
			l.SetTimer(&timers[i], due[i])
		}
		if len(l.timers) != len(due) {
			t.Fatalf("%d timers are set, want %d", len(l.timers), len(due))
		}
	}
}

// A timer set again from its own callback for a time that is due waits a round.
func TestTimerSetAgainInCallback(t *testing.T) {
	l := unstarted(t, Config{Loops: 1})
	calls := 0
	var timer Timer
	timer.Fn = func() { calls++; l.SetTimer(&timer, l.now) }
	l.SetTimer(&timer, 0)
	for want := 1; want <= 3; want++ {
		if l.runTimers(); calls != want {
			t.Fatalf("%d calls after %d rounds", calls, want)
		}
	}
}

func TestTimersOnRunningLoop(t *testing.T) {
	s, _ := serve(t, Config{Loops: 1}, &hooks{})
	l := s.Loops()[0]
	fired := make(chan int64, 3)
	onLoop(t, l, func() {
		for _, in := range []int64{30, 10, 20} {
			at := l.Now() + in
			l.SetTimer(&Timer{Fn: func() {
				if l.Now() < at {
					t.Errorf("timer for %d called at %d", at, l.Now())
				}
				fired <- in
			}}, at)
		}
	})
	for _, want := range []int64{10, 20, 30} {
		if got := receive(t, fired); got != want {
			t.Fatalf("timer of %d ms fired, want that of %d", got, want)
		}
	}
}

// Idle connections against a model with a clock of its own: none is closed too
// early, none later than a sixteenth and two buckets after its time.
func TestIdleRingAgainstModel(t *testing.T) {
	const idle = 1000
	l := unstarted(t, Config{Loops: 1, IdleMax: idle * time.Millisecond})
	l.now = 5
	rng := rand.New(rand.NewPCG(8, 8))
	var conns []*Conn
	add := func() {
		c := &Conn{ln: new(listener), loop: l, id: l.server.lastID.Add(1), fd: -1, slot: int32(len(l.conns)), lastActive: l.now}
		l.conns = append(l.conns, c)
		l.open++
		l.server.conns.Add(1)
		l.idle.add(c)
		conns = append(conns, c)
	}
	closed := 0
	for range 20_000 {
		switch n := rng.IntN(100); {
		case n < 3:
			add()
		case n < 20 && len(conns) > 0:
			conns[rng.IntN(len(conns))].lastActive = l.now
		case n == 20 && len(conns) > 0:
			conns[rng.IntN(len(conns))].Close(nil)
		case n == 21:
			l.now += int64(rng.IntN(3 * idle)) // the loop was busy
		default:
			l.now += int64(rng.IntN(10))
		}
		l.runTimers()
		conns = slices.DeleteFunc(conns, func(c *Conn) bool {
			since := l.now - c.lastActive
			if c.closed && c.closeErr == ErrIdle {
				closed++
				if since < idle {
					t.Fatalf("closed after %d ms", since)
				}
			} else if !c.closed && since > idle+2*l.idle.width {
				t.Fatalf("still open after %d ms", since)
			}
			return c.closed
		})
		if l.timers == nil != (len(conns) == 0) && len(conns) > 0 {
			t.Fatal("no timer although there are connections")
		}
	}
	if closed < 100 || int64(closed) != l.stats.idleClosed.Load() {
		t.Errorf("%d closed, %d counted", closed, l.stats.idleClosed.Load())
	}
}

// A loop without anything to do waits without end, or until the first bucket of
// idle connections is due.
func TestNoTickWhenIdle(t *testing.T) {
	l := unstarted(t, Config{Loops: 1, IdleMax: 10 * time.Minute})
	if n := l.timeout(); n != -1 {
		t.Errorf("an empty loop waits %d ms, want no end", n)
	}
	l.idle.add(&Conn{ln: new(listener), loop: l})
	if n := l.timeout(); n < 9*60*1000 {
		t.Errorf("a loop with one idle connection waits %d ms", n)
	}
	l.Post(taskFunc(func() {}))
	if n := l.timeout(); n != 0 {
		t.Errorf("a loop with a post waits %d ms", n)
	}
}

// Posts of many goroutines: each runs once, those of one goroutine in order, and
// none is forgotten by a loop that just went to sleep.
func TestPosts(t *testing.T) {
	s, _ := serve(t, Config{Loops: 2}, &hooks{})
	l := s.Loops()[1]
	const each = 3000
	var last [8]int
	var done sync.WaitGroup
	for g := range last {
		done.Go(func() {
			for i := range each {
				ran := make(chan struct{})
				l.Post(taskFunc(func() {
					if last[g] != i {
						t.Errorf("post %d of goroutine %d ran after %d", i, g, last[g])
					}
					last[g]++
					close(ran)
				}))
				if g < 2 || i%100 == 0 {
					receive(t, ran) // the loop goes to sleep just when the next one comes
				}
			}
		})
	}
	done.Wait()
	onLoop(t, l, func() {
		for g, n := range last {
			if n != each {
				t.Errorf("%d posts of goroutine %d ran, want %d", n, g, each)
			}
		}
	})
	if n := s.Stats().Wakes; n < 1 || n > each*int64(len(last)) {
		t.Errorf("%d wakes", n)
	}
}

// BeforeSleep runs when nothing is left to do; what it completes is sent.
func TestBeforeSleep(t *testing.T) {
	var waiting []*Reply
	var calls atomic.Int64
	_, addr := serve(t, Config{Loops: 1, BeforeSleep: func(l *Loop) {
		calls.Add(1)
		if !l.Idle() {
			t.Error("called on a loop that has work")
		}
		for _, r := range waiting {
			r.Send()
		}
		waiting = waiting[:0]
	}}, &hooks{frame: func(c *Conn, b []byte) {
		r := c.NewReply()
		r.Buf = appendFrame(r.Buf[:0], b)
		waiting = append(waiting, r)
	}})
	c := dial(t, addr)
	for range 10 {
		write(t, c, appendFrame(nil, []byte("wait")))
		wantFrame(t, c, []byte("wait"))
	}
	if n := calls.Load(); n < 10 {
		t.Errorf("%d calls, want at least 10", n)
	}
}

// What the handler posts at the end of a round is run in that round: an answer that waits for it goes out without another look at the sockets.
func TestPostsOfRoundEnd(t *testing.T) {
	const pings = 100
	var late []*Reply
	h := &hooks{
		frame: func(c *Conn, frame []byte) {
			r := c.NewReply()
			r.Buf = appendFrame(r.Buf[:0], frame)
			late = append(late, r)
		},
		roundEnd: func(*Loop) {
			for _, r := range late {
				r.Post()
			}
			late = late[:0]
		},
	}
	s, addr := serve(t, Config{Loops: 1}, h)
	c := dial(t, addr)
	for range pings {
		write(t, c, appendFrame(nil, []byte("x")))
		wantFrame(t, c, []byte("x"))
	}
	const others = 10 // the connection, and whatever else wakes a loop
	if n := s.Stats().Rounds; n > pings+others {
		t.Errorf("%d requests, one at a time, took %d rounds", pings, n)
	}
}

// Flush in RoundEnd sends what is complete: the peer has its answer while RoundEnd still works.
func TestFlush(t *testing.T) {
	read := make(chan struct{})
	var late *Reply
	h := &hooks{
		frame: func(c *Conn, frame []byte) {
			late = c.NewReply()
			late.Buf = appendFrame(late.Buf[:0], frame)
		},
		roundEnd: func(l *Loop) {
			late.Post()
			l.Flush()
			select {
			case <-read:
			case <-time.After(within):
				t.Error("the answer did not leave before the end of RoundEnd")
			}
		},
	}
	_, addr := serve(t, Config{Loops: 1}, h)
	c := dial(t, addr)
	for range 3 {
		write(t, c, appendFrame(nil, []byte("x")))
		wantFrame(t, c, []byte("x"))
		read <- struct{}{}
	}
}
