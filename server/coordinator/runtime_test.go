package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kaas/codec/batch"
	"kaas/engine"
	"kaas/server/config"
	"kaas/server/topics"
)

// Values of Java's String.hashCode; "polygenelubricants" has the least of all ints, which has no absolute value.
func TestPartitionOfAsApache(t *testing.T) {
	const many = 1<<31 - 1
	for key, want := range map[string]int32{"": 0, "abc": 96354, "polygenelubricants": 0, "😀": 1772899, "ä": 228, "a\x00b": 93315} {
		if got := partitionOf(key, many); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
	if got := partitionOf("abc", 50); got != 96354%50 {
		t.Errorf("abc of 50: %d", got)
	}
}

// What waits together shares a batch; an operation sees what was written before it for its key, and without a key for any.
func TestOperationsOfARoundShareABatch(t *testing.T) {
	r := newRig(t, engine.PageCache)
	q := r.rt.NewRound()
	var order []string
	submit := func(key string, op Op[*store]) {
		q.Submit(key, func(s *store, now time.Time) Outcome {
			o := op(s, now)
			o.Done = func(err error) { order = append(order, fmt.Sprint(key, err)) }
			return o
		}, func(err error) { t.Errorf("%s refused: %v", key, err) })
	}
	var saw []string
	look := func(key string) Op[*store] {
		return func(s *store, _ time.Time) Outcome {
			saw = append(saw, key+"="+s.values[key])
			return Outcome{}
		}
	}
	submit("a", put("a", "1"))
	submit("b", put("b", "1"))
	submit("c", look("a"))
	submit("b", look("b"))
	submit("b", put("b", "2"))
	submit("c", put("c", "1"))
	submit("", look("c"))
	submit("", put("any", "1"))
	submit("a", put("a", "2"))
	if len(order) != 0 {
		t.Fatalf("answered before the end of the round: %v", order)
	}
	q.End(nil)
	if want := []string{"a<nil>", "b<nil>", "c<nil>", "b<nil>", "b<nil>", "c<nil>", "<nil>", "<nil>", "a<nil>"}; !reflect.DeepEqual(order, want) {
		t.Errorf("answers %v, want %v", order, want)
	}
	if want := []string{"a=", "b=1", "c=1"}; !reflect.DeepEqual(saw, want) {
		t.Errorf("saw %v, want %v", saw, want)
	}
	if got, want := r.batches(), []string{"0+2 none", "2+2 none", "4+1 none", "5+1 none"}; !reflect.DeepEqual(got, want) {
		t.Errorf("batches %v, want %v", got, want)
	}
	if got, want := r.told(), []string{"0 a=1", "1 b=1", "2 b=2", "3 c=1", "4 any=1", "5 a=2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("replayed %v, want %v", got, want)
	}
}

// What an operation of a round brings to its own shard is run at the end of that round, some turns deep; the rest is left to a goroutine.
func TestRoundRunsWhatItBrings(t *testing.T) {
	r := newRig(t, engine.PageCache)
	q := r.rt.NewRound()
	const steps = turnsInRound + 2
	ran, all := make(chan int, steps), make(chan struct{})
	release := make(chan struct{})
	var step func(n int) Op[*store]
	step = func(n int) Op[*store] {
		return func(s *store, now time.Time) Outcome {
			if n > turnsInRound {
				<-release // a goroutine's: End must not wait here
			}
			out := put("a", fmt.Sprint(n))(s, now)
			out.Done = func(err error) {
				if err != nil {
					t.Error(err)
				}
				ran <- n
				if n == steps {
					close(all)
					return
				}
				r.rt.Submit("a", step(n+1), func(err error) { t.Error(err) })
			}
			return out
		}
	}
	q.Submit("a", step(1), func(err error) { t.Error(err) })
	var between []int // steps that were run
	q.End(func() { between = append(between, len(ran)) })
	if got := len(ran); got != turnsInRound {
		t.Errorf("%d steps were run by the round, want %d", got, turnsInRound)
	}
	if want := []int{1, 2, 3, 4}; !slices.Equal(between, want) {
		t.Errorf("told between turns after %v steps, want %v", between, want)
	}
	close(release)
	<-all
	if got := r.values()["a"]; got != fmt.Sprint(steps) {
		t.Errorf("the last step wrote %q, want %d", got, steps)
	}
}

// Now runs an operation on the spot, but not before what was given to its shard and waits for the end of the round.
func TestRoundNow(t *testing.T) {
	r := newRig(t, engine.PageCache)
	q := r.rt.NewRound()
	refused := func(err error) { t.Error(err) }
	saw := ""
	look := func(s *store, _ time.Time) Outcome {
		saw = "a=" + s.values["a"]
		return Outcome{}
	}
	q.Now("a", look, refused)
	if saw != "a=" {
		t.Errorf("on the spot: %q", saw)
	}
	saw = ""
	q.Submit("a", put("a", "1"), refused)
	q.Now("a", look, refused)
	if saw != "" {
		t.Errorf("before its turn: %q", saw)
	}
	q.End(nil)
	if saw != "a=1" {
		t.Errorf("after the round: %q", saw)
	}
	r.rt.Close()
	var err error
	q.Now("a", look, func(e error) { err = e })
	if !errors.Is(err, ErrNotOwned) {
		t.Errorf("of a runtime that is closed: %v", err)
	}
}

// Operations that do not look at each other's writes share a batch though they are about one key, until one that does comes.
func TestBlindOperationsOfOneKeyShareABatch(t *testing.T) {
	r := newRig(t, engine.PageCache)
	q := r.rt.NewRound()
	refused := func(err error) { t.Errorf("refused: %v", err) }
	saw := ""
	look := func(s *store, _ time.Time) Outcome {
		saw += s.values["a"]
		return Outcome{}
	}
	q.SubmitBlind("a", put("a", "1"), refused)
	q.SubmitBlind("a", put("a", "2"), refused)
	q.SubmitBlind("b", put("b", "1"), refused)
	q.SubmitBlind("a", put("a", "3"), refused)
	q.Submit("a", look, refused)
	q.SubmitBlind("a", put("a", "4"), refused)
	q.Submit("a", put("a", "5"), refused) // sees what the blind ones wrote
	q.SubmitBlind("a", look, refused)     // and a blind one what the others wrote
	q.End(nil)
	if saw != "35" {
		t.Errorf("saw %q", saw)
	}
	if got, want := r.batches(), []string{"0+4 none", "4+1 none", "5+1 none"}; !reflect.DeepEqual(got, want) {
		t.Errorf("batches %v, want %v", got, want)
	}
	if got, want := r.told(), []string{"0 a=1", "1 a=2", "2 b=1", "3 a=3", "4 a=4", "5 a=5"}; !reflect.DeepEqual(got, want) {
		t.Errorf("replayed %v, want %v", got, want)
	}
}

// Answers come when the log is durable up to what they show, also those of operations that wrote nothing.
func TestAnswersWaitForTheCommit(t *testing.T) {
	r := newRig(t, engine.GroupCommit)
	const n = 200
	answer := make(chan error, 2*n)
	var mu sync.Mutex
	var order []int
	for i := range n {
		key := fmt.Sprint("k", i%7)
		end := int64(0)
		r.rt.Submit(key, func(_ *store, _ time.Time) Outcome {
			return Outcome{Write: Write{Entries: []Entry{{Key: []byte(key), Value: be(i)}}}, Done: func(err error) {
				mu.Lock()
				order = append(order, 2*i)
				mu.Unlock()
				answer <- err
			}}
		}, func(err error) { answer <- err })
		r.rt.Submit(key, func(s *store, _ time.Time) Outcome {
			end = r.log().Offsets().LogEnd
			if got := s.values[key]; got != string(be(i)) {
				t.Errorf("%s is %x, want %x", key, got, be(i))
			}
			return Outcome{Done: func(err error) {
				if hw := r.log().Offsets().HighWatermark; hw < end {
					t.Errorf("read %d answered at %d, saw %d", i, hw, end)
				}
				mu.Lock()
				order = append(order, 2*i+1)
				mu.Unlock()
				answer <- err
			}}
		}, func(err error) { answer <- err })
	}
	for range 2 * n {
		if err := r.wait(answer); err != nil {
			t.Fatal(err)
		}
	}
	if len(order) != 2*n || !slices.IsSorted(order) {
		t.Errorf("answers not in order: %v", order)
	}
}

func TestRestartReplays(t *testing.T) {
	for codec := batch.CodecNone; codec <= batch.CodecZstd; codec++ {
		r := newRig(t, engine.PageCache)
		r.rt.cfg.Codec = codec
		for i := range 40 {
			r.must("k", put(fmt.Sprint("key", i%9), strings.Repeat("v", i*20)))
		}
		r.must("k", func(*store, time.Time) Outcome {
			return Outcome{Write: Write{Entries: []Entry{{Key: []byte("key0")}, {Key: []byte("empty"), Value: []byte{}}}}}
		})
		want := r.values()
		told := r.told()
		r.restart()
		if got := r.values(); !maps.Equal(got, want) || len(want) != 9 {
			t.Fatalf("got %v, want %v", got, want)
		}
		if got := r.told(); !reflect.DeepEqual(got, told) {
			t.Errorf("got %v, want %v", got, told)
		}
		if got, want := r.batches()[0], "0+1 "+codec.String(); got != want {
			t.Errorf("first batch %q, want %q", got, want)
		}
	}
}

// A full disk fails what needs room, changes nothing, and is over when there is room again.
func TestFullDisk(t *testing.T) {
	r := newRig(t, engine.PageCache)
	r.must("a", put("a", "1"))
	if err := r.faults.Set("write of *.log: ENOSPC; allocate of *.log: ENOSPC"); err != nil {
		t.Fatal(err)
	}
	if err := r.do("a", put("a", "2")); !errors.Is(err, ErrNotAvailable) {
		t.Errorf("a write without room: %v", err)
	}
	if got := r.values()["a"]; got != "1" {
		t.Errorf("a = %q", got)
	}
	if err := r.faults.Set(""); err != nil {
		t.Fatal(err)
	}
	r.must("a", put("a", "3"))
	if got := r.told(); !reflect.DeepEqual(got, []string{"0 a=1", "1 a=3"}) {
		t.Errorf("replayed %v", got)
	}
}

// One that only looks, and shared the batch of one that could not be written, is answered all the same, at once and without an error.
func TestFullDiskAnswersReaders(t *testing.T) {
	r := newRig(t, engine.PageCache)
	r.must("a", put("a", "1"))
	if err := r.faults.Set("write of *.log: ENOSPC; allocate of *.log: ENOSPC"); err != nil {
		t.Fatal(err)
	}
	q := r.rt.NewRound()
	var got []string
	submit := func(key string, op Op[*store]) {
		q.Submit(key, func(s *store, now time.Time) Outcome {
			o := op(s, now)
			o.Done = func(err error) { got = append(got, fmt.Sprint(key, " ", errors.Is(err, ErrNotAvailable), err == nil)) }
			return o
		}, func(err error) { t.Errorf("refused: %v", err) })
	}
	submit("a", put("a", "2"))
	submit("b", func(*store, time.Time) Outcome { return Outcome{} })
	q.End(nil)
	if want := []string{"a true false", "b false true"}; !reflect.DeepEqual(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
}

// A failed sync is told to everybody who waits, whoever is parked is answered, and the shard is closed until the next start.
func TestFailedSyncClosesTheShard(t *testing.T) {
	r := newRig(t, engine.GroupCommit)
	r.must("a", put("a", "1"))
	parked := make(chan error, 1)
	r.must("b", func(s *store, _ time.Time) Outcome {
		s.parked = append(s.parked, func(err error) { parked <- err })
		return Outcome{}
	})
	if err := r.faults.Set("sync of *.log: EIO"); err != nil {
		t.Fatal(err)
	}
	if err := r.do("a", put("a", "2")); !errors.Is(err, ErrNotOwned) {
		t.Errorf("write: %v", err)
	}
	if err := r.wait(parked); !errors.Is(err, ErrNotOwned) {
		t.Errorf("parked: %v", err)
	}
	if err := r.faults.Set(""); err != nil {
		t.Fatal(err)
	}
	r.clock.advance(time.Hour)
	if err := r.try("a", put("a", "3")); !errors.Is(err, ErrNotOwned) {
		t.Errorf("after it: %v", err)
	}
	r.rt.Close()
	_ = errors.Join(r.engine.Close(), r.files.Close())
	r.start()
	r.rt.Load()
	if got := r.values()["a"]; got != "1" && got != "2" {
		t.Errorf("after the restart: %q", got)
	}
}

func TestTransactions(t *testing.T) {
	r := newRig(t, engine.PageCache)
	write := func(p Producer, key, value string) Op[*store] {
		return func(*store, time.Time) Outcome {
			return Outcome{Write: Write{Entries: []Entry{{Key: []byte(key), Value: []byte(value)}}, Txn: &p}}
		}
	}
	end := func(p Producer, commit bool) {
		t.Helper()
		answer := make(chan error, 1)
		r.rt.EndTxn(0, p, commit, 7, func(err error) { answer <- err })
		if err := r.wait(answer); err != nil {
			t.Fatal(err)
		}
	}
	p, other := Producer{4000, 2}, Producer{4001, 0}
	r.must("g", write(p, "a", "txn"))
	r.must("g", write(p, "b", "txn")) // the same sequence again: the broker's own batches are not checked by it
	r.must("g", write(other, "c", "txn"))
	r.must("g", put("d", "plain"))
	if got := r.values(); len(got) != 1 {
		t.Errorf("before the end: %v", got)
	}
	if lso := r.log().Offsets().LastStable; lso != 0 {
		t.Errorf("last stable offset %d", lso)
	}
	end(p, true)
	end(other, false)
	want := map[string]string{"a": "txn", "b": "txn", "d": "plain"}
	if got := r.values(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := r.batches(), []string{"0+1 nonet", "1+1 nonet", "2+1 nonet", "3+1 none", "4+1 nonetc", "5+1 nonetc"}; !reflect.DeepEqual(got, want) {
		t.Errorf("batches %v, want %v", got, want)
	}
	r.must("g", write(p, "e", "open"))
	old := Producer{p.ID, p.Epoch - 1}
	if err := r.do("g", write(old, "f", "x")); !errors.Is(err, engine.ErrInvalidProducerEpoch) {
		t.Errorf("an old epoch: %v", err)
	}
	r.restart()
	if got := r.values(); !maps.Equal(got, want) {
		t.Errorf("after the restart: %v, want %v", got, want)
	}
	end(p, true)
	if got := r.values()["e"]; got != "open" {
		t.Errorf("e = %q", got)
	}
	none := make(chan error, 1)
	r.rt.EndTxn(9, p, true, 0, func(err error) { none <- err })
	if err := r.wait(none); !errors.Is(err, ErrNotOwned) {
		t.Errorf("a shard that is not there: %v", err)
	}
}

func TestLargeWrites(t *testing.T) {
	r := newRig(t, engine.PageCache)
	if err := r.topics.AlterTopic(topics.OffsetsTopic, []config.Change{{Name: "max.message.bytes", Value: "2000"}}, false, false); err != nil {
		t.Fatal(err)
	}
	many := func(n int, split bool) Op[*store] {
		return func(*store, time.Time) Outcome {
			var w Write
			for i := range n {
				w.Entries = append(w.Entries, Entry{Key: fmt.Append(nil, "key", i), Value: bytes.Repeat([]byte{'v'}, 100)})
			}
			w.Split = split
			return Outcome{Write: w}
		}
	}
	if err := r.do("g", many(30, false)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if got := r.values(); len(got) != 0 {
		t.Errorf("something of it was applied: %v", got)
	}
	r.must("g", many(30, true))
	if got := r.values(); len(got) != 30 {
		t.Errorf("%d values, want 30", len(got))
	}
	if got := r.batches(); len(got) != 3 {
		t.Errorf("batches %v, want 3", got)
	}
	// Those that wait together are not put into a batch that would be too large for the topic.
	q := r.rt.NewRound()
	for i := range 30 {
		key := fmt.Sprint("each", i)
		q.Submit(key, put(key, strings.Repeat("v", 100)), func(err error) { t.Error(err) })
	}
	q.End(nil)
	if got := r.values(); len(got) != 60 {
		t.Errorf("%d values, want 60", len(got))
	}
	if err := r.faults.Set("2nd write of *.log: ENOSPC; allocate of *.log: ENOSPC"); err != nil {
		t.Fatal(err)
	}
	if err := r.do("g", many(60, true)); !errors.Is(err, ErrNotAvailable) {
		t.Errorf("a split write that fails in the middle: %v", err)
	}
}
