package api

import (
	"errors"
	"log/slog"
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
	done        func(m *marker, err error)
	log         *engine.Log
	end         int64
	batchMemory [markerBytes]byte
}

// markerBytes is room for a control batch of one record: 61 of header and 17 of record.
const markerBytes = 80

// errNoPartition says that the partition is not there.
var errNoPartition = errors.New("no such partition")

// markerAgainAfter is how long a marker that could not be written waits to be tried again.
const markerAgainAfter = 200 * time.Millisecond

// take is the transaction coordinator's way in (txn.Config.Markers).
func (w *markerWriter) take(work txn.MarkerWork) {
	j := &markerJob{w: w, work: work}
	var all []*marker
	w.mu.Lock()
	if w.inWork == nil {
		w.inWork = make(map[markerKey]struct{})
	}
	for _, p := range work.Partitions {
		k := markerKey{work.ID, work.Decision, p}
		if _, already := w.inWork[k]; already {
			continue
		}
		w.inWork[k] = struct{}{}
		all = append(all, &marker{w: w, partition: p, producer: work.Producer, epoch: work.CoordinatorEpoch, commit: work.Commit, done: j.one})
	}
	w.mu.Unlock()
	if len(all) == 0 {
		return
	}
	j.left.Store(int32(len(all)))
	j.mine = make([]txn.Partition, len(all))
	for i, m := range all {
		j.mine[i] = m.partition
	}
	w.submit(all)
}

// markerJob is what one MarkerWork comes to.
type markerJob struct {
	w    *markerWriter
	work txn.MarkerWork
	mine []txn.Partition
	left atomic.Int32
}

// one is told what became of one marker. What failed is tried again, until it is there or its partition is not.
func (j *markerJob) one(m *marker, err error) {
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
	all := w.queue
	w.queue = nil
	w.mu.Unlock()
	w.write(all)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = len(w.queue) > 0
	return w.running
}

// write writes markers, those of one log together.
func (w *markerWriter) write(all []*marker) {
	var order []*engine.Log
	var unloaded []*marker
	byLog := make(map[*engine.Log][]*marker)
	for _, m := range all {
		p := w.partition(m)
		switch {
		case p == nil:
			m.done(m, errNoPartition)
		case m.partition.Topic == topics.OffsetsTopic:
			w.throughGroups(m)
		case !p.Log.Loaded() && !m.loaded:
			m.log = p.Log
			unloaded = append(unloaded, m)
		default:
			if m.log = p.Log; byLog[m.log] == nil {
				order = append(order, m.log)
			}
			byLog[m.log] = append(byLog[m.log], m)
		}
	}
	if len(unloaded) > 0 {
		w.s.engine.Go(func() { w.load(unloaded) })
	}
	for _, log := range order {
		w.append(log, byLog[log])
	}
	for _, log := range order {
		for _, m := range byLog[log] {
			m.await()
		}
	}
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
		m.done(m, err)
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
	entries := make([]engine.Entry, len(all))
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
			m.done(m, err)
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
		m.done(m, err)
	}
}

// Durable implements engine.DurableWaiter.
func (m *marker) Durable(err error) { m.done(m, err) }

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
