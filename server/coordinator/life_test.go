package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"kaas/codec/batch"
	"kaas/engine"
	"kaas/server/topics"
)

func TestTimers(t *testing.T) {
	r := newRig(t, engine.PageCache)
	fired := make(chan string, 10)
	var late Timer
	r.must("", func(s *store, _ time.Time) Outcome {
		set := func(d time.Duration, name string) Timer {
			h := s.timers.After(d, func(now time.Time) Outcome {
				o := put(name, "fired")(s, now)
				o.Done = func(error) { fired <- name }
				return o
			})
			if h == 0 {
				t.Error("handle 0")
			}
			return h
		}
		set(5*time.Second, "five")
		set(time.Second, "one")
		gone := set(2*time.Second, "stopped")
		s.timers.Stop(gone)
		s.timers.Stop(gone)
		s.timers.Stop(0)
		late = set(time.Hour, "late")
		return Outcome{}
	})
	r.clock.advance(999 * time.Millisecond)
	r.values()
	if len(fired) != 0 {
		t.Fatalf("too early: %s", <-fired)
	}
	r.clock.advance(time.Millisecond)
	if got := <-fired; got != "one" {
		t.Errorf("fired %s", got)
	}
	r.clock.advance(10 * time.Second)
	if got := <-fired; got != "five" {
		t.Errorf("fired %s", got)
	}
	if got, want := r.values(), map[string]string{"one": "fired", "five": "fired"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// One that rings while an operation that stops it is in work is not run.
	r.must("", func(s *store, _ time.Time) Outcome {
		r.clock.advance(time.Hour)
		s.timers.Stop(late)
		return Outcome{}
	})
	r.values()
	if len(fired) != 0 {
		t.Errorf("a stopped timer fired: %s", <-fired)
	}
}

// Timers of a state that was given up do nothing any more.
func TestTimersDieWithTheirState(t *testing.T) {
	r := newRig(t, engine.PageCache)
	r.must("", func(s *store, _ time.Time) Outcome {
		s.timers.After(time.Minute, func(time.Time) Outcome { t.Error("fired"); return Outcome{} })
		return Outcome{}
	})
	if err := r.try("", func(*store, time.Time) Outcome { panic("the state is broken") }); !errors.Is(err, ErrNotOwned) {
		t.Fatalf("a panic: %v", err)
	}
	r.clock.advance(loadAgainAfter)
	r.must("a", put("a", "1"))
	r.clock.advance(time.Hour)
	r.values()
	r.rt.alarms.mu.Lock()
	defer r.rt.alarms.mu.Unlock()
	if r.rt.alarms.wheel.armed != 0 {
		t.Errorf("%d timers are left", r.rt.alarms.wheel.armed)
	}
}

// A panic costs a shard what it had in memory; what was written is loaded anew. Everybody who waits is answered.
func TestPanicLoadsAnew(t *testing.T) {
	r := newRig(t, engine.PageCache)
	r.must("a", put("a", "1"))
	answers := make(chan error, 3)
	q := r.rt.NewRound()
	refused := func(err error) { answers <- err }
	q.Submit("b", put("b", "1"), refused)
	q.Submit("c", func(s *store, _ time.Time) Outcome {
		s.values["a"] = "broken"
		panic("broken")
	}, refused)
	q.Submit("d", put("d", "1"), refused)
	q.End(nil)
	for range 2 {
		if err := r.wait(answers); !errors.Is(err, ErrNotOwned) {
			t.Errorf("refused with %v", err)
		}
	}
	if err := r.try("a", put("a", "2")); !errors.Is(err, ErrNotOwned) {
		t.Errorf("at once after it: %v", err)
	}
	r.clock.advance(loadAgainAfter)
	if err := r.try("a", put("a", "2")); !errors.Is(err, ErrLoading) {
		t.Errorf("the first after a while: %v", err)
	}
	if got, want := r.values(), map[string]string{"a": "1"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A panic while a batch is applied, at the end of a round or because somebody wants to see it, leaves nobody without an answer.
func TestPanicInReplayAnswersEverybody(t *testing.T) {
	for _, seen := range []bool{false, true} {
		r := newRig(t, engine.PageCache)
		r.must("a", put("a", "1"))
		answers := map[string]chan error{"b": make(chan error, 2), "c": make(chan error, 2), "d": make(chan error, 2)}
		q := r.rt.NewRound()
		submit := func(key string, op Op[*store]) {
			tell := func(err error) { answers[key] <- err } // on the shard's goroutine, if that has begun
			q.Submit(key, func(s *store, now time.Time) Outcome {
				o := op(s, now)
				o.Done = tell
				return o
			}, tell)
		}
		nothing := func(*store, time.Time) Outcome { return Outcome{} }
		submit("b", put("b", "panic"))
		submit("c", nothing)
		keys := []string{"b", "c"}
		if seen {
			submit("b", nothing)
			submit("d", nothing)
			keys = append(keys, "b", "d")
		}
		q.End(nil)
		for _, key := range keys {
			if err := r.wait(answers[key]); !errors.Is(err, ErrNotOwned) {
				t.Errorf("seen=%v: %s was answered %v", seen, key, err)
			}
		}
	}
}

// While a shard is being loaded it refuses operations, but for those that can wait.
func TestLoading(t *testing.T) {
	r := newRig(t, engine.PageCache)
	r.must("a", put("a", "1"))
	r.block = make(chan struct{})
	r.restart()
	if err := r.try("a", put("a", "2")); !errors.Is(err, ErrLoading) {
		t.Errorf("write: %v", err)
	}
	answer := make(chan error, 2)
	if n := r.rt.Ask(func(*store, time.Time) Outcome { return Outcome{} }, func(err error) { answer <- err }); n != 1 {
		t.Errorf("asked %d shards", n)
	}
	if err := r.wait(answer); !errors.Is(err, ErrLoading) {
		t.Errorf("asked: %v", err)
	}
	n := r.rt.Each(func(s *store, now time.Time) Outcome {
		if s.loaded != 1 || s.values["a"] != "1" {
			t.Errorf("loaded %d times, a = %q", s.loaded, s.values["a"])
		}
		o := put("b", "1")(s, now)
		o.Done = func(err error) { answer <- err }
		return o
	}, nil)
	if s := r.rt.Stats(); n != 1 || s.Open != 0 || s.Shards != 1 {
		t.Errorf("%d shards, %+v", n, s)
	}
	close(r.block)
	if err := r.wait(answer); err != nil {
		t.Error(err)
	}
	if got, want := r.values(), map[string]string{"a": "1", "b": "1"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if s := r.rt.Stats(); s.Open != 1 || s.Batches != 1 || s.Records != 1 {
		t.Errorf("%+v", s)
	}
}

// A record that makes no sense, and a batch that is not what was written, are passed over.
func TestLoadPassesOverNonsense(t *testing.T) {
	r := newRig(t, engine.PageCache)
	r.must("a", put("a", "1"))
	r.must("n", put("nonsense", "x"))
	r.must("b", put("b", strings.Repeat("large", 1000))) // more than is read at a time
	r.restart()
	if got := r.values(); len(got) != 2 || got["a"] != "1" || len(got["b"]) != 5000 {
		t.Errorf("got %v", got)
	}
	ld := loader[*store]{shard: &shard[*store]{rt: r.rt, partition: r.topics.ByName(topics.OffsetsTopic).Partition(0),
		state: &store{values: map[string]string{}}}, inflater: batch.NewInflater(inflateMax)}
	build := func(base int64, key string) []byte {
		var b batch.Builder
		spec := batch.NewSpec()
		spec.BaseOffset = base
		b.Begin(nil, spec)
		b.Append(1, []byte(key), []byte("v"))
		return b.End(nil)
	}
	bad := build(1, "bad")
	bad[len(bad)-1] ^= 1
	set := append(append(build(0, "one"), bad...), build(2, "three")...)
	next, err := ld.batches(set, 0)
	if got := ld.shard.state.values; next != 3 || err != nil || len(got) != 2 || got["three"] != "v" || ld.bad != 1 {
		t.Errorf("next %d, %v, %v, %d bad", next, err, got, ld.bad)
	}
	if next, err := ld.batches(append(build(0, "one"), set[:70]...), 0); next != 2 && err != nil {
		t.Errorf("a cut batch: %d, %v", next, err)
	}
	if _, err := ld.batches(make([]byte, 61), 0); err == nil {
		t.Error("zeros are taken for a batch")
	}
	huge := build(0, "huge")
	copy(huge[8:], []byte{0x7f, 0xff, 0xff, 0xf0})
	if _, err := ld.batches(huge, 0); !errors.Is(err, batch.ErrTorn) || len(ld.buf) != 0 {
		t.Errorf("a batch that would be larger than the log: %v, %d bytes", err, len(ld.buf))
	}
	if _, err := ld.batches(huge[:20], 0); !errors.Is(err, batch.ErrTorn) {
		t.Errorf("less than a header: %v", err)
	}
}

// Close runs what was given before it, answers whoever is parked, and refuses the rest.
func TestClose(t *testing.T) {
	r := newRig(t, engine.GroupCommit)
	const n = 50
	answers := make(chan error, n+2)
	for i := range n {
		key := fmt.Sprint("k", i)
		r.rt.Submit(key, func(s *store, now time.Time) Outcome {
			o := put(key, "v")(s, now)
			o.Done = func(err error) { answers <- err }
			return o
		}, func(err error) { answers <- err })
	}
	r.rt.Submit("p", func(s *store, _ time.Time) Outcome {
		s.parked = append(s.parked, func(err error) { answers <- err })
		return Outcome{}
	}, func(err error) { answers <- err })
	r.rt.Close()
	if len(answers) != n+1 {
		t.Fatalf("%d answers when Close returned, want %d", len(answers), n+1)
	}
	for i := range n {
		if err := <-answers; err != nil {
			t.Errorf("answer %d: %v", i, err)
		}
	}
	if err := <-answers; !errors.Is(err, ErrNotOwned) {
		t.Errorf("parked: %v", err)
	}
	if err := r.try("late", put("late", "v")); !errors.Is(err, ErrNotOwned) {
		t.Errorf("after Close: %v", err)
	}
	r.rt.Close() // again does no harm
}

// The topic deleted and made again is another one: nothing of the old is left.
func TestTopicMadeAnew(t *testing.T) {
	r := newRig(t, engine.PageCache)
	parked := make(chan error, 1)
	r.must("a", func(s *store, now time.Time) Outcome {
		s.parked = append(s.parked, func(err error) { parked <- err })
		return put("a", "1")(s, now)
	})
	if err := r.topics.Delete(r.topics.ByName(topics.OffsetsTopic), nil); err != nil {
		t.Fatal(err)
	}
	if err := r.try("a", put("a", "2")); !errors.Is(err, ErrNotOwned) {
		t.Errorf("without a topic: %v", err)
	}
	if err := r.wait(parked); !errors.Is(err, ErrNotOwned) {
		t.Errorf("parked: %v", err)
	}
	if n, at := r.rt.Ask(nil, nil), r.rt.ShardOf("a"); n != 0 || at != -1 {
		t.Errorf("%d shards without a topic, a is in %d", n, at)
	}
	if err := r.topics.EnsureInternal(topics.OffsetsTopic); err != nil {
		t.Fatal(err)
	}
	r.must("b", put("b", "1"))
	if got, want := r.values(), map[string]string{"b": "1"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if at := r.rt.ShardOf("a"); at != 0 {
		t.Errorf("a is in shard %d", at)
	}
}

// Many goroutines and rounds at once lose nothing, and each sees its own writes.
func TestManyAtOnce(t *testing.T) {
	for _, d := range []engine.Durability{engine.PageCache, engine.GroupCommit} {
		r := newRig(t, d)
		var all sync.WaitGroup
		const workers, each = 8, 100
		for w := range workers {
			all.Go(func() {
				key := fmt.Sprint("counter", w%4)
				round := r.rt.NewRound()
				for range each {
					answer := make(chan error, 1)
					op := func(s *store, now time.Time) Outcome {
						o := put(key, s.values[key]+"x")(s, now)
						o.Done = func(err error) { answer <- err }
						return o
					}
					if refused := func(err error) { answer <- err }; w < workers/2 {
						r.rt.Submit(key, op, refused)
					} else {
						round.Submit(key, op, refused)
						round.End(nil)
					}
					if err := <-answer; err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		r.restart()
		want := map[string]string{}
		for w := range 4 {
			want[fmt.Sprint("counter", w)] = strings.Repeat("x", 2*each)
		}
		if got := r.values(); !reflect.DeepEqual(got, want) {
			for k, v := range got {
				t.Errorf("%s: %d, want %d", k, len(v), 2*each)
			}
		}
	}
}
