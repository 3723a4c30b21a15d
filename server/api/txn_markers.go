package api

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kaas/codec/api"
	"kaas/codec/batch"
	"kaas/engine"
	"kaas/server/coordinator"
	"kaas/server/group"
	"kaas/server/topics"
	"kaas/server/txn"
)

// markerWriter writes the markers that end transactions, in whatever partitions. Those that wait at the same time are written together: one
// append per log, and then one wait for all of them, so that a transaction over a hundred partitions costs one group commit. Markers for
// __consumer_offsets go through the shards of the group coordinator, which apply them to the offsets that wait for them.
//
// Whoever brings work when nobody is at it does it himself, for the latency of a small transaction; what comes meanwhile is left to a goroutine.
// It blocks for the page cache only, as a Produce does.
type markerWriter struct {
	s *Service

	mu      sync.Mutex // guards what follows; held for moments
	queue   []*marker
	running bool
	closed  bool                   // nothing is tried again
	inWork  map[markerKey]struct{} // of the coordinator: not to be written twice

	// What follows is memory of whoever writes, used again.
	taken   []*marker // from the queue
	runs    []markerRun
	byLog   map[*engine.Log]int // index in runs
	entries []engine.Entry

	markers [2]atomic.Int64 // written for the coordinator and for clients: aborts, commits
	again   atomic.Int64    // failed, and to be tried again
}

// markerKey names one marker of one decided transaction.
type markerKey struct {
	id        string
	decision  int64
	partition txn.Partition
}

// marker is the end of one transaction in one partition. It implements engine.DurableWaiter.
type marker struct {
	w           *markerWriter
	partition   txn.Partition
	producer    coordinator.Producer
	epoch       int32 // of the transaction coordinator
	commit      bool
	loaded      bool // its log was loaded, or failed to
	owner       markerOwner
	log         *engine.Log
	end         int64
	batchMemory [markerBytes]byte
}

// markerOwner is told what became of a marker, once, on any goroutine.
type markerOwner interface{ marked(m *marker, err error) }

// markerRun is what one log gets in one turn.
type markerRun struct {
	log *engine.Log
	all []*marker
}

// markerBytes is room for a control batch of one record: 61 of header and 17 of record.
const markerBytes = 80

// markersKept is up to how many markers of a turn the memory for them is kept.
const markersKept = 1024

// errNoPartition says that the partition is not there.
var errNoPartition = errors.New("no such partition")

// markerAgainAfter is how long a marker that could not be written waits to be tried again.
const markerAgainAfter = 200 * time.Millisecond

// take is the transaction coordinator's way in (txn.Config.Markers). True: all markers of the work are there, and the coordinator is told.
func (w *markerWriter) take(work txn.MarkerWork) bool {
	j := &markerJob{w: w, work: work}
	w.mu.Lock()
	j.mine = w.claimLocked(&work)
	w.mu.Unlock()
	if len(j.mine) == 0 {
		return false
	}
	j.left.Store(int32(len(j.mine)))
	ms, all := j.first[:], j.one[:0]
	if len(j.mine) > len(ms) {
		ms = make([]marker, len(j.mine))
	}
	for i, p := range j.mine {
		ms[i] = marker{w: w, partition: p, producer: work.Producer, epoch: work.CoordinatorEpoch, commit: work.Commit, owner: j}
		all = append(all, &ms[i])
	}
	w.submit(all)
	return j.told.Load() && len(j.mine) == len(work.Partitions)
}

// claimLocked takes the partitions of a work that are not in work yet: all of them, but after a shard was loaded anew.
func (w *markerWriter) claimLocked(work *txn.MarkerWork) []txn.Partition {
	if w.inWork == nil {
		w.inWork = make(map[markerKey]struct{})
	}
	already := func(p txn.Partition) bool {
		_, in := w.inWork[markerKey{work.ID, work.Decision, p}]
		return in
	}
	mine := work.Partitions
	if slices.ContainsFunc(mine, already) {
		mine = slices.DeleteFunc(slices.Clone(mine), already)
	}
	for _, p := range mine {
		w.inWork[markerKey{work.ID, work.Decision, p}] = struct{}{}
	}
	return mine
}

// markerJob is what one MarkerWork comes to.
type markerJob struct {
	w     *markerWriter
	work  txn.MarkerWork
	mine  []txn.Partition // not to be changed
	left  atomic.Int32
	told  atomic.Bool // the coordinator's operation is queued
	first [1]marker   // most transactions are over one partition
	one   [1]*marker
}

// marked implements markerOwner. What failed is tried again, until it is there or its partition is not.
func (j *markerJob) marked(m *marker, err error) {
	w := j.w
	switch {
	case err == nil, errors.Is(err, errNoPartition), errors.Is(err, engine.ErrDeleted):
	case errors.Is(err, engine.ErrInvalidProducerEpoch), errors.Is(err, engine.ErrCoordinatorFenced):
		// A later transaction has ended there, which only an administrator can have done (WriteTxnMarkers): this one has, too.
		w.s.log.Warn("the marker of a transaction is refused by a partition that is ahead of it", slog.String("transactional id", j.work.ID),
			slog.String("topic", m.partition.Topic), slog.Int("partition", int(m.partition.Index)), slog.Any("error", err))
	default:
		w.retry(m)
		return
	}
	if j.left.Add(-1) == 0 {
		j.tell()
	}
}

// tell tells the coordinator. Until it has heard, all partitions of the job stay in work: one that was handed out anew in between, to a
// shard that was loaded again, could be marked after this report has made the transaction complete, and so end the next one.
func (j *markerJob) tell() {
	w := j.w
	w.s.txns.Submit(j.work.ID, func(s *txn.Shard, now time.Time) coordinator.Outcome {
		w.mu.Lock()
		for _, p := range j.mine {
			delete(w.inWork, markerKey{j.work.ID, j.work.Decision, p})
		}
		w.mu.Unlock()
		return s.MarkersWritten(j.work.ID, j.work.Decision, j.mine, now)
	}, func(error) { w.later(j.tell) }) // the shard is loaded anew
	j.told.Store(true)
}

// retry writes a marker later.
func (w *markerWriter) retry(m *marker) {
	w.again.Add(1)
	m.log, m.loaded = nil, false
	w.later(func() { w.submit([]*marker{m}) })
}

// later runs f after a while, unless nothing is tried again.
func (w *markerWriter) later(f func()) {
	time.AfterFunc(markerAgainAfter, func() {
		w.mu.Lock()
		closed := w.closed
		w.mu.Unlock()
		if !closed {
			f()
		}
	})
}

// close ends the trying again. Transactions that are not complete go on after the next start.
func (w *markerWriter) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
}

// submit has markers written.
func (w *markerWriter) submit(all []*marker) {
	w.mu.Lock()
	w.queue = append(w.queue, all...)
	start := !w.running
	w.running = true
	w.mu.Unlock()
	if start && w.turn() {
		go func() {
			for w.turn() {
			}
		}()
	}
}

// turn writes what waits. False: there is no more, and whoever comes next begins anew.
func (w *markerWriter) turn() (more bool) {
	w.mu.Lock()
	w.taken, w.queue = w.queue, w.taken[:0]
	w.mu.Unlock()
	w.write(w.taken)
	w.forget()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = len(w.queue) > 0
	return w.running
}

// forget lets go of what was written, and of memory after a large turn.
func (w *markerWriter) forget() {
	if len(w.taken) > markersKept {
		w.taken, w.runs, w.byLog, w.entries = nil, nil, nil, nil
		return
	}
	clear(w.taken)
	clear(w.entries[:cap(w.entries)])
	clear(w.byLog)
	for i := range w.runs {
		r := &w.runs[i]
		clear(r.all)
		r.log, r.all = nil, r.all[:0]
	}
	w.runs = w.runs[:0]
}

// write writes markers, those of one log together.
func (w *markerWriter) write(all []*marker) {
	var unloaded []*marker
	for _, m := range all {
		p := w.partition(m)
		switch {
		case p == nil:
			m.owner.marked(m, errNoPartition)
		case m.partition.Topic == topics.OffsetsTopic:
			w.throughGroups(m)
		case !p.Log.Loaded() && !m.loaded:
			m.log = p.Log
			unloaded = append(unloaded, m)
		default:
			m.log = p.Log
			r := w.runOf(p.Log)
			r.all = append(r.all, m)
		}
	}
	if len(unloaded) > 0 {
		w.s.engine.Go(func() { w.load(unloaded) })
	}
	for i := range w.runs {
		w.append(w.runs[i].log, w.runs[i].all)
	}
	for i := range w.runs {
		for _, m := range w.runs[i].all {
			m.await()
		}
	}
}

// runOf finds or begins what a log gets in this turn.
func (w *markerWriter) runOf(log *engine.Log) *markerRun {
	if w.byLog == nil {
		w.byLog = make(map[*engine.Log]int)
	}
	at, ok := w.byLog[log]
	if !ok {
		at = len(w.runs)
		w.byLog[log] = at
		if at < cap(w.runs) {
			w.runs = w.runs[:at+1]
		} else {
			w.runs = append(w.runs, markerRun{})
		}
		w.runs[at].log = log
	}
	return &w.runs[at]
}

// partition finds a marker's partition; nil if there is none.
func (w *markerWriter) partition(m *marker) *topics.Partition {
	t := w.s.topics.ByName(m.partition.Topic)
	if t == nil {
		return nil
	}
	return t.Partition(m.partition.Index)
}

// load opens logs that were not used since the start.
func (w *markerWriter) load(all []*marker) {
	for _, m := range all {
		_ = m.log.Load() // the append says what is wrong
		m.loaded = true
	}
	w.submit(all)
}

// throughGroups has a marker written by the shard of the group coordinator that holds its partition.
func (w *markerWriter) throughGroups(m *marker) {
	w.s.groups.EndTxn(m.partition.Index, m.producer, m.commit, m.epoch, func(err error) {
		if err == nil {
			w.count(m)
		}
		m.owner.marked(m, err)
	})
}

func (w *markerWriter) count(m *marker) {
	kind := batch.ControlAbort
	if m.commit {
		kind = batch.ControlCommit
	}
	w.markers[kind].Add(1)
}

// append appends the markers of one log in one run. Those that fail are told.
func (w *markerWriter) append(log *engine.Log, all []*marker) {
	w.entries = resize(w.entries, len(all))
	entries := w.entries
	for i, m := range all {
		kind := batch.ControlAbort
		if m.commit {
			kind = batch.ControlCommit
		}
		data := batch.AppendMarker(m.batchMemory[:0], batch.Marker{Type: kind, ProducerID: m.producer.ID, ProducerEpoch: m.producer.Epoch,
			CoordinatorEpoch: m.epoch, TimestampMs: w.s.now(), LeaderEpoch: batch.NoLeaderEpoch})
		info := batch.InfoOf(data)
		entries[i] = engine.Entry{Data: data, Info: engineInfo(&info)}
		entries[i].Info.Control = true
	}
	log.Append(entries)
	for i, m := range all {
		if err := entries[i].Err; err != nil {
			m.log = nil
			m.owner.marked(m, err)
			continue
		}
		m.end = entries[i].LastOffset + 1
		w.count(m)
	}
}

// await has a marker that was appended told when it is durable.
func (m *marker) await() {
	if m.log == nil {
		return // failed
	}
	durable, err := m.log.AwaitDurable(m.end, m)
	if durable || err != nil {
		m.owner.marked(m, err)
	}
}

// Durable implements engine.DurableWaiter.
func (m *marker) Durable(err error) { m.owner.marked(m, err) }

// markerError maps what became of a marker to Kafka's codes, for WriteTxnMarkers.
func markerError(err error) api.ErrorCode {
	switch {
	case err == nil:
		return api.ErrNone
	case errors.Is(err, errNoPartition), errors.Is(err, engine.ErrDeleted):
		return api.ErrUnknownTopicOrPartition
	case errors.Is(err, engine.ErrInvalidProducerEpoch):
		return api.ErrInvalidProducerEpoch
	case errors.Is(err, engine.ErrCoordinatorFenced):
		return api.ErrTransactionCoordinatorFenced
	case errors.Is(err, coordinator.ErrLoading), errors.Is(err, coordinator.ErrNotAvailable), errors.Is(err, coordinator.ErrNotOwned):
		return group.Refusal(api.KeyWriteTxnMarkers, err)
	}
	return api.ErrKafkaStorageError
}
