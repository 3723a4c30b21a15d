package txn

import (
	"cmp"
	"slices"
	"strings"
	"unique"

	"kaas/codec/api"
	"kaas/server/coordinator"
)

// Status is the state of a transactional id, by Apache's numbers in the log.
type Status int8

// The states. Dead and PrepareEpochFence are never written: they are known as names for filters only.
const (
	Empty             Status = iota // initialized, no transaction yet
	Ongoing                         // partitions were added
	PrepareCommit                   // decided, markers are being written
	PrepareAbort                    // the same
	CompleteCommit                  // all markers are written
	CompleteAbort                   // the same
	Dead                            // being expired
	PrepareEpochFence               // about to be aborted by a new producer
	statuses
)

var statusNames = [statuses]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

// String is the name that DescribeTransactions and ListTransactions use.
func (st Status) String() string { return statusNames[st] }

// prepared says that a decision is on its way to the partitions.
func (st Status) prepared() bool { return st == PrepareCommit || st == PrepareAbort }

// isOpen says that there is a transaction.
func (st Status) isOpen() bool { return st == Ongoing || st.prepared() }

// decision is the state that a decision leads to.
func decision(commit bool) Status {
	if commit {
		return PrepareCommit
	}
	return PrepareAbort
}

// Partition names a partition of a topic.
type Partition struct {
	Topic string
	Index int32
}

func byTopic(a, b Partition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Index, b.Index))
}

// txn is one transactional id. What it holds but lastEpoch is in its last record; it changes in Replay.
type txn struct {
	id         string
	producerID int64
	updated    int64 // ms; when the last record was made
	started    int64 // ms; when the transaction began, -1 before the first
	open       *open // nil without a transaction
	timeoutMs  int32
	epoch      int16
	// lastEpoch is the epoch before this one if its own holder asked for the bump, so that its retry is known; else noEpoch. Not in the
	// log, as in Apache 3.7.
	lastEpoch int16
	status    Status
}

// noEpoch and noProducer are what requests say in place of an epoch and a producer id.
const (
	noEpoch    int16 = -1
	noProducer int64 = -1
)

// open is a transaction that has begun and is not complete.
type open struct {
	partitions []Partition // by topic and index; never changed, only replaced

	// Of one that is decided:
	decided    int64       // offset of the decision's record: its name
	left       []Partition // without a marker so far; as partitions
	marked     bool        // all markers were there when they had been handed out: there is nothing to wait for
	completing bool        // the record of its completion is on its way
	reply      func(api.ErrorCode)
	timer      coordinator.Timer // ends the wait of reply

	// Records of Ongoing that were appended and that became durable, in this life of the shard.
	written, durable int
}

// holds says whether all of some partitions, in order, are in the transaction.
func (o *open) holds(all []Partition) bool {
	for _, p := range all {
		if !has(o.partitions, p) {
			return false
		}
	}
	return true
}

func has(sorted []Partition, p Partition) bool {
	_, found := slices.BinarySearchFunc(sorted, p, byTopic)
	return found
}

// union is a list of what is in a or b; both are in order and are not changed.
func union(a, b []Partition) []Partition {
	if len(a) == 0 {
		return b
	}
	all := make([]Partition, 0, len(a)+len(b))
	all = append(append(all, a...), b...)
	slices.SortFunc(all, byTopic)
	return slices.Compact(all)
}

// without is a list of what is in a and not in b.
func without(a, b []Partition) []Partition {
	if slices.Equal(a, b) {
		return nil
	}
	gone := slices.Clone(b)
	slices.SortFunc(gone, byTopic)
	rest := make([]Partition, 0, len(a))
	for _, p := range a {
		if !has(gone, p) {
			rest = append(rest, p)
		}
	}
	return rest
}

// inOrder are the partitions that a request names, once each. Nothing of the request is kept.
func inOrder(topics []api.AddPartitionsToTxnRequestAddPartitionsToTxnTopic) []Partition {
	n := 0
	for i := range topics {
		n += len(topics[i].Partitions)
	}
	all := make([]Partition, 0, n)
	for i := range topics {
		topic := unique.Make(topics[i].Name).Value()
		for _, index := range topics[i].Partitions {
			all = append(all, Partition{topic, index})
		}
	}
	slices.SortFunc(all, byTopic)
	return slices.Compact(all)
}
