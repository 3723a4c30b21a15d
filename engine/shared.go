package engine

import (
	"cmp"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"kaas/engine/commit"
	"kaas/engine/redo"
	"kaas/engine/segment"
	"kaas/engine/vfs"
)

// What decides whether a round goes through the commit journal. BenchmarkSyncWays on ext4, medians in µs for 1 KiB in each of 1, 8, 64
// files: one fdatasync each on 16 threads 216, 1168, 6488; syncfs 344, 763, 4390; the commit journal, with the batches written behind and
// its checkpoints running, 229, 286, 977. For one log it costs the same as that log's own fdatasync into zeros that were written ahead; but
// those zeros have to be written and synced for all data for ever, and the syncs of the zeros were a third of a round. So one log uses it
// too, and segments get no zeros.
const (
	// sharedLogMax is how much of one log goes through the journal in a round. A sync of more costs its bytes, and these would be written twice.
	sharedLogMax = 256 << 10
	// sharedRoundMax is how much of all logs together.
	sharedRoundMax = 2 << 20
	// sharedAfter is how many rounds go by before the files are made: a process that hardly writes makes none. Where they lack room, it is how
	// many until that is looked at again.
	sharedAfter = 32
	// settleThreads is how many logs are synced at the same time behind a file of the journal that was left. Nobody waits for them, and the
	// journal's own syncs suffer from them: 64 logs on 64 partitions had 170 to 436 rounds/s so, 131 to 366 with 16 threads, 124 to 151
	// with syncfs (in turn, on a busy disk).
	settleThreads = 2
	// volumeSyncMin is how many logs a close syncs by one syncfs rather than one by one, and settleVolumeMin how many times as many it takes
	// behind the journal.
	volumeSyncMin   = 32
	settleVolumeMin = 8
)

// shared is the use of the commit journal (package redo): rounds of group commit whose data is small become durable in it with one
// sync, while the files of the logs, where the data is already, are synced behind when a file of the journal is full. Everything but
// the counter belongs to the committer, save for a list of logs between its file's being left and being recycled.
type shared struct {
	e       *Engine
	j       *redo.Journal
	work    sync.WaitGroup // what runs in the background; waited for when no more rounds come
	usable  atomic.Bool    // no records of an earlier life are needed any more
	making  atomic.Bool    // the files are being made
	made    atomic.Bool    // they are
	lacking atomic.Bool    // there was no room for them the last time
	running atomic.Bool    // the last round went through it
	staging atomic.Int64   // logs with staged bytes
	rounds  int
	after   int
	logsMax int // a file with so many logs counts as full: their descriptors cannot be closed
	frame   redo.Frame
	picked  []*Log
	marks   []mark    // of the logs that Pick is asked about
	takes   []bool    // which of them the frame has room for
	logs    [2][]*Log // with pieces in that file
}

// newShared returns nil when the engine does without.
func newShared(e *Engine) *shared {
	if e.cfg.Storage == Memory || e.cfg.Durability != GroupCommit || e.cfg.CommitJournalBytes < 0 {
		return nil
	}
	return &shared{e: e, j: redo.New(e.cfg.FS, e.cfg.Dir, e.cfg.CommitJournalBytes), after: e.cfg.sharedAfter, logsMax: max(1, e.cfg.MaxOpenFiles/4)}
}

// pick is commit.Config.Pick: it takes the logs whose round goes through the journal, and reads what they have to make durable.
func (s *shared) pick(logs []*Log, out []commit.Outcome) {
	if s == nil || !s.usable.Load() || s.j.Broken() {
		return
	}
	if !s.made.Load() {
		s.prepare()
		return
	}
	all := s.choose(logs)
	if all == 0 {
		return
	}
	part, left, ok := s.j.Turn(all, len(s.logs[s.j.Current()]) >= s.logsMax)
	if left >= 0 {
		s.work.Go(func() { s.settle(left) })
	}
	s.running.Store(ok)
	if !ok {
		return
	}
	s.frame.Reset()
	s.picked = s.picked[:0]
	for i, l := range logs {
		if s.takes[i] && l.share(s, &s.marks[i], part) {
			s.picked = append(s.picked, l)
			out[i] = commit.Outcome{Picked: true, End: s.marks[i].end.offset}
		}
	}
}

// prepare has the files made in the background when it is time.
func (s *shared) prepare() {
	if s.rounds++; s.rounds%s.after != 0 || s.making.Swap(true) {
		return
	}
	s.work.Go(func() {
		defer s.making.Store(false)
		if s.made.Load() { // since it was asked for
			return
		}
		err := s.j.Prepare()
		switch {
		case err == nil:
			s.made.Store(true)
		case s.e.closed.Load():
		case s.j.Broken():
			s.e.cfg.Logger.Warn("the commit journal cannot be used", "error", err)
		case !s.lacking.Swap(true):
			s.e.cfg.Logger.Info("no commit journal while the disk has no room for it", "error", err)
		}
	})
}

// choose finds the logs that the round's frame has room for, and how large the frame may become; 0 when there are none.
func (s *shared) choose(logs []*Log) (most int64) {
	s.marks, s.takes = s.marks[:0], s.takes[:0]
	all, some := int64(redo.Overhead), false
	for _, l := range logs {
		m := l.pub.read()
		n := m.end.pos - m.hw.pos
		takes := l.shareable(&m) && n <= sharedLogMax && all+n+redo.Overhead <= sharedRoundMax
		if takes {
			all += n + redo.Overhead
			some = true
		}
		s.marks, s.takes = append(s.marks, m), append(s.takes, takes)
	}
	if !some {
		return 0
	}
	return all
}

// shareable tells whether what a round has to make durable of the log, up to m, may go through the journal. Not so: names that are not
// durable yet, a roll, a log without an id, whose pieces a later log of its name could not tell from its own.
func (l *Log) shareable(m *mark) bool {
	if l.spec.TopicID == [16]byte{} || l.namesBehind() || m.hw.seg != m.end.seg || m.hw.offset != l.item.Durable() {
		return false
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return len(l.rolled) == 0
}

// share puts what the log has to make durable into the frame.
func (l *Log) share(s *shared, m *mark, part int) bool {
	if n := m.end.pos - m.hw.pos; n > 0 {
		if !l.copyInto(s, m, int(n)) {
			return false
		}
		if !l.shared[part] {
			l.shared[part] = true
			s.logs[part] = append(s.logs[part], l)
		}
	}
	l.syncMu.Lock()
	l.syncing = m.end
	l.syncMu.Unlock()
	return true
}

// copyInto copies the bytes that were staged, else from the page cache: they were written a moment ago.
func (l *Log) copyInto(s *shared, m *mark, n int) bool {
	b := s.frame.Add(&redo.Piece{Log: l.name(), Topic: l.spec.TopicID, Segment: m.end.seg, At: m.hw.pos}, n)
	if l.fromStaged(b, m.end.seg, m.hw.pos) || l.fromFile(b, m) {
		return true
	}
	s.frame.Undo()
	return false
}

func (l *Log) fromFile(b []byte, m *mark) bool {
	segs := *l.segs.Load()
	i := len(segs) - 1
	for i >= 0 && segs[i].Base() != m.end.seg {
		i--
	}
	if i < 0 {
		return false
	}
	r, err := segs[i].Acquire()
	if err != nil {
		return false
	}
	defer r.Release()
	got, _ := r.File().ReadAt(b, m.hw.pos)
	return got == len(b)
}

// sync is commit.Config.SyncPicked. A journal that cannot be written is no reason to lose a log: each is synced by itself then. What a
// failed sync has left is unknown, though, and takes all logs of the round with it.
func (s *shared) sync(out []commit.Outcome) error {
	if s.frame.Pieces() == 0 {
		return nil
	}
	if err := s.j.Write(&s.frame); err != nil {
		if s.j.Broken() {
			s.e.cfg.Logger.Warn("the commit journal cannot be used any more", "error", err)
		}
		for i, l := range s.picked {
			out[i].End, out[i].Err = l.sync()
		}
		return nil
	}
	return s.j.Sync()
}

// settle makes durable in their own files the logs with pieces in a file of the journal that was left, and has it used again. If that
// fails the file stays for the next start, and the journal is used no more.
func (s *shared) settle(part int) {
	logs := s.logs[part]
	if err := s.e.syncLogs(logs); err != nil {
		s.e.cfg.Logger.Error("the commit journal is used no more: a log that it covers could not be synced", "error", err)
		return
	}
	for _, l := range logs {
		l.shared[part] = false
	}
	clear(logs)
	s.logs[part] = logs[:0]
	if err := s.j.Recycle(part); err != nil && !s.e.closed.Load() {
		s.e.cfg.Logger.Warn("the commit journal cannot be used any more", "error", err)
	}
}

// unsynced is a segment with writes that a sync is going to cover.
type unsynced struct {
	log  *Log
	seg  *segment.Segment
	seen int64
}

// syncLogs makes durable what the files of these logs have: by one syncfs when there are many. What fails takes its log offline: a failed
// syncfs all of them.
func (e *Engine) syncLogs(logs []*Log) error {
	if len(logs) >= settleVolumeMin*e.cfg.volumeMin && e.volume != nil {
		return e.syncVolume(logs)
	}
	var first atomic.Pointer[error]
	each(logs, settleThreads, func(l *Log) {
		for _, s := range *l.segs.Load() {
			if err := l.syncSegment(s); err != nil && l.Err() != ErrDeleted {
				e.group.Poison(&l.item, err)
				first.CompareAndSwap(nil, &err)
				return
			}
		}
	})
	if p := first.Load(); p != nil {
		return *p
	}
	return nil
}

func (e *Engine) syncVolume(logs []*Log) error {
	var list []unsynced
	for _, l := range logs {
		if l.Err() == ErrDeleted {
			continue
		}
		for _, s := range *l.segs.Load() {
			if s.Dirty() {
				list = append(list, unsynced{l, s, s.Writes()})
			}
		}
	}
	all := e.volume.Sync()
	first := all
	for _, u := range list {
		err := all
		if err == nil {
			err = u.seg.Synced(u.seen)
		} else {
			u.seg.Doubt(err)
		}
		if err != nil && u.log.Err() != ErrDeleted {
			e.group.Poison(&u.log.item, err)
			first = cmp.Or(first, err)
		}
	}
	return first
}

// redo writes again what the commit journal of the last life has of this log, and makes it durable. What is in the files already is
// the same; what a power cut took, or a failed write-back, comes back.
func (ld *loader) redo(j *journalEntry) error {
	old := ld.l.e.old.Load()
	if old == nil || !j.dirty {
		return nil
	}
	files := map[int64]vfs.File{}
	var err error
	var buf []byte
	for _, r := range old.Records(ld.l.name()) {
		// What ends before the recovery point is durable, and may have been compacted since.
		if r.Segment < j.recovery || r.Topic != ld.l.spec.TopicID {
			continue
		}
		if buf, err = ld.redoOne(old, &r, files, buf); err != nil {
			break
		}
	}
	for _, f := range files {
		if f == nil {
			continue
		}
		if err == nil && !ld.later {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	return err
}

// redoOne writes one record. A segment that is not there was deleted: names are durable before anything in the journal is.
func (ld *loader) redoOne(old *redo.Old, r *redo.Record, files map[int64]vfs.File, buf []byte) ([]byte, error) {
	f, known := files[r.Segment]
	if !known {
		var err error
		f, err = ld.fs.Open(ld.dir+"/"+segment.FileName(r.Segment, segment.LogSuffix), vfs.ReadWrite)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return buf, err
		}
		if err != nil {
			f = nil
		}
		files[r.Segment] = f
	}
	if f == nil {
		return buf, nil
	}
	buf, err := old.Read(r, buf)
	if err == nil {
		_, err = f.WriteAt(buf, r.At)
	}
	return buf, err
}

// openShared reads what the commit journal of the last life has. Without records it is removed at once, otherwise when all logs that
// need it are recovered.
func (e *Engine) openShared() error {
	if e.cfg.Storage == Memory {
		return nil
	}
	old, err := redo.Scan(e.cfg.FS, e.cfg.Dir)
	if err != nil {
		return err
	}
	if e.volume, err = vfs.OpenVolume(e.cfg.FS, e.cfg.Dir); err != nil {
		old.Close()
		return err
	}
	if !old.Empty() {
		e.old.Store(old)
		return nil
	}
	old.Close()
	return e.dropOld()
}

// dropOld ends the use of what an earlier life left, and begins that of this life's.
func (e *Engine) dropOld() error {
	if e.cfg.Storage == Memory {
		return nil
	}
	if old := e.old.Swap(nil); old != nil {
		old.Close()
	}
	err := redo.Discard(e.cfg.FS, e.cfg.Dir)
	if vfs.NoRoom(err) { // what they have is in the logs: the next start finds the same
		e.cfg.Logger.Warn("no commit journal until the next start: the old one could not be removed", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	if e.shared != nil {
		e.shared.usable.Store(true)
	}
	return nil
}

func (e *Engine) releaseShared() error {
	if e.shared != nil {
		e.shared.work.Wait()
		e.shared.j.Close()
	}
	if old := e.old.Swap(nil); old != nil {
		old.Close()
	}
	if e.volume == nil {
		return nil
	}
	return e.volume.Close()
}

// closeShared closes the files, and removes them if no log needs them: those that are dirty yet may.
func (e *Engine) closeShared() error {
	if e.cfg.Storage == Memory {
		return nil
	}
	err := e.releaseShared()
	if !e.journal.anyDirty() {
		err = errors.Join(err, redo.Discard(e.cfg.FS, e.cfg.Dir))
	}
	return err
}
