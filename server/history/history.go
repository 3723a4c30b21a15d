// Package history judges what became of transactions: what their producers did and were told is held against what partitions hold, and
// against what read_committed readers saw. The random tests of the coordinator, of a broker on a failing disk, and of broker processes
// that are killed share it.
//
// It is no part of the broker, does no I/O, and knows neither a protocol nor a client: who uses it turns what was read into Records.
//
// # What it takes for granted
//
//   - A transaction sends numbered records to each partition, 0, 1, 2…, and waits for no answer between them unless it likes to.
//   - The logs are read when all is calm: everybody was told, or never will be, and whatever was open had the time to be aborted.
package history

import (
	"fmt"
	"maps"
	"slices"
)

// Kind is a kind of fault.
type Kind string

// What can be wrong.
const (
	LostWrite   Kind = "lost write"         // promised, and not there, or not seen by a reader
	AbortedRead Kind = "aborted read (G1a)" // seen, though it was aborted, or nobody asked for its commit
	Torn        Kind = "torn transaction"   // a part of it committed, another part aborted
	Duplicate   Kind = "duplicate"
	Reordered   Kind = "reordered"
	StuckLSO    Kind = "stuck LSO" // records of a transaction that never ends
	Invented    Kind = "invented"  // of no transaction, or more of it than was sent
)

// Fault is one thing that is wrong.
type Fault struct {
	Kind Kind
	Text string
}

// End is what a producer was told of the end of its transaction.
type End int

// Untold stands for an answer that never came, and for one that leaves the end open.
const (
	Untold End = iota
	Committed
	Aborted
)

func (e End) String() string { return [...]string{"untold", "committed", "aborted"}[e] }

// Txn is a transaction as its producer knows it.
type Txn struct {
	Name        string
	AskedCommit bool          // a commit was asked for, answered or not
	Told        End           // by the answer
	Sent        map[int32]int // by partition, records that may be there: they have the numbers below it
	Acked       map[int32]int // by partition, records that were acknowledged: likewise
}

// Record is one record of a partition, or the marker that ends a transaction there.
type Record struct {
	Producer int64 // id: a marker ends what this one has open
	Marker   bool
	Commit   bool // of a marker
	Txn      int  // index of the transaction; below 0 is one that nobody knows
	N        int  // the record's number within its transaction and partition
}

// Verdict is what is known of the transactions once the logs were read.
type Verdict struct {
	Faults []Fault
	txns   []*Txn
	ended  []map[bool][]int32 // by transaction and decision, the partitions that have it
	logs   map[int32][]Record // the committed records, in order
}

func (v *Verdict) add(kind Kind, format string, args ...any) {
	v.Faults = append(v.Faults, Fault{kind, fmt.Sprintf(format, args...)})
}

// Judge holds transactions against the logs of all partitions that they wrote to.
func Judge(txns []*Txn, logs map[int32][]Record) *Verdict {
	v := &Verdict{txns: txns, ended: make([]map[bool][]int32, len(txns)), logs: map[int32][]Record{}}
	for i := range v.ended {
		v.ended[i] = map[bool][]int32{}
	}
	partitions := slices.Sorted(maps.Keys(logs))
	for _, p := range partitions {
		v.decisions(p, logs[p])
	}
	for _, p := range partitions {
		v.order(p, logs[p])
	}
	for i := range txns {
		v.end(i)
	}
	return v
}

// decisions finds the end of every record of a log.
func (v *Verdict) decisions(p int32, log []Record) {
	open := map[int64][]int{} // positions by producer
	commit := make([]bool, len(log))
	for at, r := range log {
		if !r.Marker {
			open[r.Producer] = append(open[r.Producer], at)
			continue
		}
		for _, o := range open[r.Producer] {
			commit[o] = r.Commit
			if t := log[o].Txn; t >= 0 && !slices.Contains(v.ended[t][r.Commit], p) {
				v.ended[t][r.Commit] = append(v.ended[t][r.Commit], p)
			}
		}
		delete(open, r.Producer)
	}
	for _, id := range slices.Sorted(maps.Keys(open)) {
		v.add(StuckLSO, "partition %d has %d open records of producer %d, the first of %s", p, len(open[id]), id, v.name(log[open[id][0]].Txn))
	}
	for at, r := range log {
		if !r.Marker && commit[at] {
			v.logs[p] = append(v.logs[p], r)
		}
	}
}

func (v *Verdict) name(txn int) string {
	if txn < 0 {
		return "an unknown transaction"
	}
	return v.txns[txn].Name
}

// order checks that each partition has what was sent to it once, in order and without gaps.
func (v *Verdict) order(p int32, log []Record) {
	next := map[int]int{}
	for _, r := range log {
		switch {
		case r.Marker:
			continue
		case r.Txn < 0 || r.N < 0 || r.N >= v.txns[r.Txn].Sent[p]:
			v.add(Invented, "partition %d has number %d of %s", p, r.N, v.name(r.Txn))
			continue
		case r.N == next[r.Txn]-1:
			v.add(Duplicate, "partition %d has number %d of %s again", p, r.N, v.name(r.Txn))
		case r.N < next[r.Txn]:
			v.add(Reordered, "partition %d has number %d of %s after %d", p, r.N, v.name(r.Txn), next[r.Txn]-1)
		case r.N > next[r.Txn] && v.counts(r.Txn): // a transaction that is not committed may have lost what its producer gave up
			v.add(LostWrite, "partition %d has number %d of %s, where %d is expected", p, r.N, v.name(r.Txn), next[r.Txn])
		}
		next[r.Txn] = max(next[r.Txn], r.N+1)
	}
	for i, t := range v.txns {
		if v.counts(i) && next[i] < t.Acked[p] {
			v.add(LostWrite, "partition %d has %d records of %s, of which %d were acknowledged", p, next[i], t.Name, t.Acked[p])
		}
	}
}

// counts says that a transaction is committed, or should be.
func (v *Verdict) counts(txn int) bool {
	return len(v.ended[txn][true]) > 0 || v.txns[txn].Told == Committed
}

// end checks how a transaction ended.
func (v *Verdict) end(i int) {
	t := v.txns[i]
	committed, aborted := v.ended[i][true], v.ended[i][false]
	switch {
	case len(committed) > 0 && len(aborted) > 0:
		v.add(Torn, "%s is committed in %v and aborted in %v", t.Name, committed, aborted)
	case len(committed) > 0 && !t.AskedCommit:
		v.add(AbortedRead, "%s is committed, and nobody asked for it", t.Name)
	case len(committed) > 0 && t.Told == Aborted:
		v.add(AbortedRead, "%s is committed, and its producer was told that it is aborted", t.Name)
	case len(aborted) > 0 && t.Told == Committed:
		v.add(LostWrite, "%s is aborted, and its producer was told that it is committed", t.Name)
	}
}

// Committed are the committed records of a partition in the order of its log.
func (v *Verdict) Committed(p int32) []Record { return v.logs[p] }

// Reader holds against the log what a read_committed reader saw of a partition from its start on; whole says that it has read to the end.
func (v *Verdict) Reader(name string, p int32, seen []Record, whole bool) {
	type place struct{ txn, n int }
	at := map[place]int{}
	for i, r := range v.logs[p] {
		at[place{r.Txn, r.N}] = i
	}
	next := 0
	for _, r := range seen {
		i, ok := at[place{r.Txn, r.N}]
		switch {
		case !ok:
			v.add(AbortedRead, "%s saw number %d of %s in partition %d, which is not committed there", name, r.N, v.name(r.Txn), p)
			continue
		case i == next-1:
			v.add(Duplicate, "%s saw number %d of %s in partition %d twice", name, r.N, v.name(r.Txn), p)
		case i < next:
			v.add(Reordered, "%s saw number %d of %s in partition %d after what follows it", name, r.N, v.name(r.Txn), p)
		case i > next:
			v.add(LostWrite, "%s saw nothing of %d records in partition %d, from number %d of %s on", name, i-next, p, v.logs[p][next].N, v.name(v.logs[p][next].Txn))
		}
		next = max(next, i+1)
	}
	if left := len(v.logs[p]) - next; whole && left > 0 {
		v.add(LostWrite, "%s did not see the last %d records of partition %d, from number %d of %s on", name, left, p, v.logs[p][next].N, v.name(v.logs[p][next].Txn))
	}
}
