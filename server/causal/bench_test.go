package causal

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"kaas/codec/parsley"
	"kaas/engine/state"
	"kaas/engine/vfs"
)

var widths = []int{1, 4, 16, 64, 256}

// cpuTime is the CPU time of the process in nanoseconds: wall time says little on a machine that others use.
func cpuTime() int64 {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// cpu reports the CPU time for each operation.
func cpu(b *testing.B) func() {
	from := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-from)/float64(b.N), "cpu-ns/op") }
}

// benchChannel is channel i of many, of topics whose ids are spread.
func benchChannel(i int) parsley.Channel {
	var c parsley.Channel
	binary.BigEndian.PutUint64(c.Topic[:], uint64(i/4+1)*0x9e3779b97f4a7c15)
	c.Partition = int32(i % 4)
	return c
}

func benchChannels(n int) (list []parsley.Channel) {
	for i := range n {
		list = append(list, benchChannel(i))
	}
	return list
}

// benchNode consumes n channels, delivered up to 100 each, of sender other up to 100.
func benchNode(b *testing.B, n int, store Store) *Node {
	b.Helper()
	node, err := Open(Config{Sender: me, Consumed: benchChannels(n), Sinks: []uuid.UUID{topic(30)}}, store)
	if err != nil {
		b.Fatal(err)
	}
	if err := node.Start(Facts{Ends: []End{{sink0, 0}}}); err != nil {
		b.Fatal(err)
	}
	for i := range n {
		if _, err := node.Receive(benchChannel(i), tagged(100, other, 100), nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := node.Commit(nil); err != nil {
		b.Fatal(err)
	}
	return node
}

// benchClock has width claims: on offsets of channels 0…, of which every fourth is on a sequence in its place if mixed, every
// one if sequences.
func benchClock(width int, kind string) (c parsley.Clock) {
	for i := range width {
		if kind == "sequences" || kind == "mixed" && i%4 == 3 {
			c.RaiseSequence(parsley.SequenceKey{Channel: benchChannel(i), Sender: other}, 100)
		} else {
			c.RaiseOffset(benchChannel(i), 100)
		}
	}
	return c
}

// BenchmarkGate looks at a clock all of whose claims are on consumed channels and met.
func BenchmarkGate(b *testing.B) {
	for _, width := range widths {
		for _, kind := range []string{"offsets", "mixed", "sequences"} {
			for _, consumed := range []int{4, width + 4, 1000} {
				b.Run(fmt.Sprintf("width=%d/claims=%s/consumed=%d", width, kind, consumed), func(b *testing.B) {
					n := benchNode(b, consumed, &Memory{})
					claims := benchClock(width, kind)
					self := n.byID[benchChannel(consumed-1)]
					b.ReportAllocs()
					stop := cpu(b)
					for b.Loop() {
						n.needs = n.unmet(n.needs[:0], self, &claims)
					}
					stop()
					if len(n.needs) > 0 {
						b.Fatal("not met")
					}
				})
			}
		}
	}
}

// BenchmarkGateChanging is BenchmarkGate with two clocks in turn that have no channel in common: hints are always wrong.
func BenchmarkGateChanging(b *testing.B) {
	for _, width := range widths {
		for _, kind := range []string{"offsets", "sequences"} {
			b.Run(fmt.Sprintf("width=%d/claims=%s", width, kind), func(b *testing.B) {
				n := benchNode(b, 2*width+4, &Memory{})
				var clocks [2]parsley.Clock
				for i := range 2 * width {
					if kind == "sequences" {
						clocks[i%2].RaiseSequence(parsley.SequenceKey{Channel: benchChannel(i), Sender: other}, 100)
					} else {
						clocks[i%2].RaiseOffset(benchChannel(i), 100)
					}
				}
				self := n.byID[benchChannel(2*width+3)]
				b.ReportAllocs()
				stop, turn := cpu(b), 0
				for b.Loop() {
					n.needs = n.unmet(n.needs[:0], self, &clocks[turn])
					turn = 1 - turn
				}
				stop()
				if len(n.needs) > 0 {
					b.Fatal("not met")
				}
			})
		}
	}
}

// BenchmarkStamp stamps and writes the headers, with one frontier moved between two stamps and every send acknowledged.
func BenchmarkStamp(b *testing.B) {
	for _, width := range widths {
		for _, kind := range []string{"offsets", "mixed"} {
			b.Run(fmt.Sprintf("width=%d/claims=%s", width, kind), func(b *testing.B) {
				n := benchNode(b, 1, &Memory{})
				r := rec(101)
				for i := range width {
					if kind == "mixed" && i%4 == 3 {
						r.Clock.RaiseSequence(parsley.SequenceKey{Channel: benchChannel(i + 1), Sender: other}, 100)
					} else {
						r.Clock.RaiseOffset(benchChannel(i+1), 100)
					}
				}
				c := n.channels[0]
				if _, err := n.Receive(c.id, r, nil); err != nil {
					b.Fatal(err)
				}
				var stamp parsley.Stamp
				var headers []parsley.Header
				var buf []byte
				b.ReportAllocs()
				stop := cpu(b)
				for b.Loop() {
					n.advance(c, c.frontier+1)
					if err := n.Stamp(sink0, &stamp); err != nil {
						b.Fatal(err)
					}
					headers, buf = stamp.AppendHeaders(headers[:0], buf[:0])
					if err := n.Acked(sink0, stamp.Sequence, stamp.Sequence); err != nil {
						b.Fatal(err)
					}
				}
				stop()
				if got := stamp.Clock.Width(); got != width+2 {
					b.Fatalf("%d claims", got)
				}
			})
		}
	}
}

// BenchmarkCascade releases depth records with one: all in one queue, or each behind one in another queue, of up to 1000.
// An operation is one release, but that whole cascades are run.
func BenchmarkCascade(b *testing.B) {
	for _, shape := range []string{"queue", "chain"} {
		for _, width := range widths {
			for _, depth := range []int{1, 10, 100, 1000, 10_000, 100_000} {
				if width*depth > 400_000 || width > 4 && depth > 10_000 {
					continue // the clocks alone would take hundreds of megabytes
				}
				b.Run(fmt.Sprintf("shape=%s/width=%d/depth=%d", shape, width, depth), func(b *testing.B) {
					benchCascade(b, shape, width, depth)
				})
			}
		}
	}
}

func benchCascade(b *testing.B, shape string, width, depth int) {
	channels := 1
	if shape == "chain" {
		channels = min(depth, 1000)
	}
	cfg := Config{Sender: me, Consumed: append(benchChannels(channels), far), HeldBytes: 1 << 30, ReleaseBytes: 1 << 40}
	out := make([]Delivery, 0, depth+1)
	var woken, checks int64
	for done := 0; done < b.N; done += depth {
		b.StopTimer()
		n, err := Open(cfg, &Memory{})
		if err != nil {
			b.Fatal(err)
		}
		if err := n.Start(Facts{}); err != nil {
			b.Fatal(err)
		}
		for i := range depth {
			on, offset, behind := benchChannel(i%channels), int64(i/channels), off(far, 0)
			if shape == "chain" && i > 0 {
				behind = off(benchChannel((i-1)%channels), int64((i-1)/channels))
			}
			r := rec(offset, behind)
			for j := 1; j < width; j++ {
				r.Clock.RaiseOffset(ch(100, int32(j)), 5) // not consumed
			}
			if out, err = n.Receive(on, r, out[:0]); err != nil || len(out) > 0 {
				b.Fatal(len(out), err)
			}
		}
		before := n.Counts()
		b.StartTimer()
		if out, err = n.Receive(far, rec(0), out[:0]); err != nil || len(out) != depth+1 {
			b.Fatal(len(out), err)
		}
		woken += n.Counts().ClaimsWoken - before.ClaimsWoken
		checks += n.Counts().GateChecks - before.GateChecks
	}
	releases := float64((b.N + depth - 1) / depth * depth)
	b.ReportMetric(float64(woken)/releases, "wakes/release")
	b.ReportMetric(float64(checks)/releases, "checks/release")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/releases, "ns/release")
}

// BenchmarkDeliver takes records from their headers to their delivery: four channels in turn, each record with four claims, new
// ones every time, tagged, of 100 bytes. A commit after each or after a hundred.
func BenchmarkDeliver(b *testing.B) {
	for _, kind := range []string{"memory", "engine"} {
		for _, held := range []bool{false, true} {
			for _, per := range []int{1, 100} {
				b.Run(fmt.Sprintf("store=%s/held=%v/width=4/commit=%d", kind, held, per), func(b *testing.B) {
					benchDeliver(b, kind, held, per)
				})
			}
		}
	}
}

func benchDeliver(b *testing.B, kind string, held bool, per int) {
	var store Store = &Memory{}
	if kind == "engine" {
		s, err := state.Open(vfs.OS, b.TempDir(), state.Options{OnError: func(err error) { b.Error(err) }})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		store = &Engine{Store: s}
	}
	n := benchNode(b, 4, store)
	headers := make([][]byte, 4)
	sequence := make([]byte, 8)
	var clock parsley.Clock
	var stamp parsley.Stamp
	var record parsley.Held
	var out []Delivery
	var err error
	value := make([]byte, 100)
	delivered := 0
	b.ReportAllocs()
	b.ResetTimer()
	stop := cpu(b)
	for i := range b.N {
		round, on := int64(i/4), i%4
		clock.Reset()
		for j := range 4 {
			n := 100 + round // delivered in the round before
			if held && j == 3 && on < 3 {
				n++ // of this round, and its turn comes last: three of four have to wait
			}
			clock.RaiseOffset(benchChannel(j), n)
		}
		headers[on] = clock.Append(headers[on][:0])
		binary.BigEndian.PutUint64(sequence, uint64(101+round))
		var h parsley.Headers
		h.Add(parsley.HeaderClock, headers[on])
		h.Add(parsley.HeaderSender, other[:])
		h.Add(parsley.HeaderSequence, sequence)
		if err = stamp.Decode(&h, parsley.Strict); err != nil {
			b.Fatal(err)
		}
		record = parsley.Held{Offset: 101 + round, Tagged: true, Sender: stamp.Sender, Sequence: stamp.Sequence, Clock: stamp.Clock, Key: value[:8], Value: value}
		if out, err = n.Receive(benchChannel(on), &record, out[:0]); err != nil {
			b.Fatal(err)
		}
		delivered += len(out)
		if i%per == per-1 {
			if err := n.Commit(nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	stop()
	if b.N > 4 && delivered < b.N-4 {
		b.Fatalf("%d of %d delivered", delivered, b.N)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkHeldHeap holds a million records on disk, and delivers them.
func BenchmarkHeldHeap(b *testing.B) {
	const records = 1_000_000
	for b.Loop() {
		each, n, closeStore := heldHeap(b, records)
		b.ReportMetric(each, "B/record")
		out, err := n.Receive(c, rec(0), nil)
		total := len(out)
		for err == nil && n.More() {
			out, err = n.Resume(out[:0])
			total += len(out)
		}
		if err != nil || total != records+1 {
			b.Fatal(total, err)
		}
		closeStore()
	}
}
