package server

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/engine/vfs/crashfs"
	"kaas/server/history"
)

var (
	faultySeeds = flag.Uint64("faulty-seeds", 6, "random histories of TestTransactionsOnAFailingDisk")
	faultyFirst = flag.Uint64("faulty-first", 0, "the first `seed` of TestTransactionsOnAFailingDisk")
)

const (
	faultyParts  = 3
	faultyIDs    = 2
	faultyRounds = 4
	faultyTries  = 3 // of one request, while the disk fails
)

// diskFaults are what happens to the disk in a round. Those that leave a log offline want a restart; after the others all goes on by itself.
var diskFaults = []struct {
	rules   string
	restart bool
}{
	{"space of t-*/*.log: ENOSPC", false},
	{"space of __transaction_state-*/*.log: ENOSPC", false},
	{"space of *.log: ENOSPC", false},
	{"space of *.log after 1 KiB: ENOSPC", false},
	{"2nd write of *.log: short ENOSPC", false},
	{"sync of *.log: slow 3ms", false},
	{"", true},
	{"3rd sync of *.log: EIO", true},
	{"2nd+ sync of t-*/*.log: EIO", true},
	{"2nd sync of __transaction_state-*/*.log: EIO", true},
	{"2nd+ write of *.log: EIO", true},
}

// faultyWorld is a broker on a disk that fails and loses what was not durable, with producers that are told little.
type faultyWorld struct {
	t      *testing.T
	rng    *rand.Rand
	dir    string
	disk   *crashfs.Disk
	faults *crashfs.Faults
	b      *Broker
	c      *client
	all    []*txnClient
	ready  []bool // whether that one's producer id is its own, as far as it knows
	txns   []*history.Txn
}

func (w *faultyWorld) settings() []string {
	return []string{"kaas.durability", "group-commit", "transaction.state.log.num.partitions", "2", "log.segment.bytes", "4096"}
}

func (w *faultyWorld) open() {
	w.b = startWith(w.t, w.faults.FS(w.disk), w.dir, w.settings()...)
	w.redial()
}

// redial gives the producers a connection with a deadline of its own.
func (w *faultyWorld) redial() {
	w.c = dial(w.t, w.b)
	for _, x := range w.all {
		x.client = w.c
	}
}

// set makes the disk follow rules.
func (w *faultyWorld) set(rules string) {
	w.t.Helper()
	if err := w.faults.Set(rules); err != nil {
		w.t.Fatal(err)
	}
}

// cut ends the broker as a power cut does. The catalog, which is on another disk, is as it was at that moment.
func (w *faultyWorld) cut() {
	w.t.Helper()
	after, catalog := w.disk.Crash(w.rng), w.t.TempDir()
	if err := os.CopyFS(catalog, os.DirFS(w.dir)); err != nil {
		w.t.Fatal(err)
	}
	stopDirty(w.t, w.b, true)
	if err := os.RemoveAll(w.dir); err != nil {
		w.t.Fatal(err)
	}
	if err := os.CopyFS(w.dir, os.DirFS(catalog)); err != nil {
		w.t.Fatal(err)
	}
	w.disk = after
	w.set("")
	w.open()
}

// again sends a request until its answer is not for another try, but not for ever.
func again(ask func() api.ErrorCode) (code api.ErrorCode) {
	for range faultyTries {
		switch code = ask(); code {
		case api.ErrConcurrentTransactions, api.ErrCoordinatorNotAvailable, api.ErrNotCoordinator, api.ErrCoordinatorLoadInProgress, api.ErrKafkaStorageError:
		default:
			return code
		}
	}
	return code
}

// transaction is one of a producer, as far as it comes.
func (w *faultyWorld) transaction(i int) {
	x := w.all[i]
	if !w.ready[i] {
		if w.ready[i] = again(func() api.ErrorCode { return w.init(x) }) == api.ErrNone; !w.ready[i] {
			return
		}
	}
	t := &history.Txn{Name: fmt.Sprintf("%s:%d", x.id, len(w.txns)), Sent: map[int32]int{}, Acked: map[int32]int{}}
	seq := len(w.txns)
	w.txns = append(w.txns, t)
	whole := true
	for range 1 + w.rng.IntN(4) {
		p := w.rng.Int32N(faultyParts)
		if again(func() api.ErrorCode { return x.add("t", p) }) != api.ErrNone {
			whole = false
			break
		}
		value := fmt.Sprintf("%d:%d", seq, t.Sent[p])
		t.Sent[p]++
		if again(func() api.ErrorCode { return x.put("t", p, value) }) != api.ErrNone {
			whole = false
			break
		}
		t.Acked[p]++
	}
	w.ready[i] = whole
	if !whole && w.rng.IntN(2) == 0 {
		return // the next InitProducerId aborts it
	}
	t.AskedCommit = whole && w.rng.IntN(4) > 0
	code := again(func() api.ErrorCode { return x.end(t.AskedCommit) })
	switch {
	case code != api.ErrNone:
		w.ready[i] = false
	case t.AskedCommit:
		t.Told = history.Committed
	default:
		t.Told = history.Aborted
	}
}

// init is one InitProducerId of a program that has just started.
func (w *faultyWorld) init(x *txnClient) api.ErrorCode {
	p := x.tryInit(60_000)
	if p.ErrorCode == api.ErrNone {
		x.pid, x.epoch, x.next = p.ProducerId, p.ProducerEpoch, map[int32]int32{}
	}
	return p.ErrorCode
}

// calm has every producer begin anew on a disk that is well: then nothing may be open.
func (w *faultyWorld) calm(after string) {
	w.t.Helper()
	w.redial()
	for i, x := range w.all {
		eventually(w.t, "a producer id for "+x.id+" after "+after, func() bool { return w.init(x) == api.ErrNone })
		w.ready[i] = true
	}
	for p := range int32(faultyParts) {
		eventually(w.t, fmt.Sprintf("the last stable offset of partition %d after %s", p, after), func() bool {
			_, lso := w.c.committedData("t", p)
			return lso == w.c.fetch("t", p, 0).HighWatermark
		})
	}
}

// log reads a partition with its markers.
func (w *faultyWorld) log(p int32) (out []history.Record) {
	w.t.Helper()
	for offset := int64(0); ; {
		set := w.c.fetch("t", p, offset).Records.Bytes
		if len(set) == 0 {
			return out
		}
		for len(set) > 0 {
			v, err := batch.Next(set)
			if err != nil {
				w.t.Fatal(err)
			}
			if m, ok := batch.ReadMarker(v); ok {
				out = append(out, history.Record{Producer: v.ProducerID(), Marker: true, Commit: m.Type == batch.ControlCommit, Txn: -1})
			} else {
				for _, r := range values(w.t, v) {
					out = append(out, w.record(v.ProducerID(), r.value))
				}
			}
			offset = v.LastOffset() + 1
			set = set[v.Size():]
		}
	}
}

func (w *faultyWorld) record(producer int64, value string) history.Record {
	r := history.Record{Producer: producer}
	if _, err := fmt.Sscanf(value, "%d:%d", &r.Txn, &r.N); err != nil || r.Txn >= len(w.txns) {
		r.Txn = -1
	}
	return r
}

func (w *faultyWorld) judge() {
	w.t.Helper()
	logs := map[int32][]history.Record{}
	for p := range int32(faultyParts) {
		logs[p] = w.log(p)
	}
	v := history.Judge(w.txns, logs)
	for p := range int32(faultyParts) {
		data, _ := w.c.committedData("t", p)
		var seen []history.Record
		for _, value := range data {
			seen = append(seen, w.record(0, value))
		}
		v.Reader("read_committed", p, seen, true)
	}
	for _, f := range v.Faults {
		w.t.Errorf("%s: %s", f.Kind, f.Text)
	}
}

// TestTransactionsOnAFailingDisk: full disks, failed syncs and writes, and power cuts in the middle of transactions. One whose commit was answered
// is whole, one that was not is whole or absent, and none stays open once the disk is well again: without a restart if the disk was only full.
func TestTransactionsOnAFailingDisk(t *testing.T) {
	told := map[history.End]int{}
	fired := 0
	for seed := *faultyFirst; seed < *faultyFirst+*faultySeeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &faultyWorld{t: t, rng: rand.New(rand.NewPCG(seed, 2)), dir: t.TempDir(), disk: crashfs.New(), faults: crashfs.Rules("")}
			w.open()
			w.c.create("t", faultyParts, "retention.ms", "-1") // the times of records are old
			for i := range faultyIDs {
				w.all = append(w.all, w.c.producer(fmt.Sprint("x", i)))
				w.ready = append(w.ready, true)
			}
			for range faultyRounds {
				fault := diskFaults[w.rng.IntN(len(diskFaults))]
				w.redial()
				from := w.rng.IntN(3)
				for n := range from + 2 {
					if n == from {
						w.set(fault.rules)
					}
					w.transaction(w.rng.IntN(faultyIDs))
				}
				fired += w.faults.Fired()
				w.set("")
				if fault.restart {
					w.cut()
				}
				w.calm(fault.rules)
				w.transaction(w.rng.IntN(faultyIDs))
			}
			w.calm("all")
			w.judge()
			stopDirty(t, w.b, true)
			for _, x := range w.txns {
				told[x.Told]++
			}
		})
	}
	t.Logf("%v; %d operations failed", told, fired)
	if !t.Failed() && (fired == 0 || told[history.Committed] == 0 || told[history.Aborted] == 0 || told[history.Untold] == 0) {
		t.Error("nothing went wrong, so nothing was tested")
	}
}
