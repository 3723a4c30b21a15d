package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"kaas/engine/producer"
	"kaas/engine/segment"
	"kaas/engine/vfs"
)

// Load finds out what the log has: for a clean log by its newest files, for one that may be dirty by a verified scan from
// its recovery point. It may block. A log that cannot be loaded is offline, unless the disk had no room for what recovery has to write: then the
// next use tries again.
func (l *Log) Load() error { return l.load(nil) }

// load is Load, with progress told of bytes that were scanned, every MiB or so.
func (l *Log) load(progress func(n int64)) error {
	if l.loaded.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.st != nil {
		return nil
	}
	return l.loadLocked(progress)
}

func (l *Log) loadLocked(progress func(n int64)) error {
	ld := l.loader(progress)
	if err := l.find(ld); err != nil {
		return err
	}
	l.publish(ld)
	return nil
}

func (l *Log) loader(progress func(n int64)) *loader {
	return &loader{l: l, st: &state{snapshot: -1, outdated: -1}, fs: l.e.cfg.FS, dir: l.dir(), progress: progress}
}

// find is the part of a load that looks into the files. mu is held.
func (l *Log) find(ld *loader) error {
	if f := l.failed.Load(); f != nil {
		return f.err
	}
	if l.e.closed.Load() {
		return ErrClosed
	}
	if err := l.contained(ld.load); err != nil {
		err = fmt.Errorf("%w: %w", ErrStorage, err)
		if vfs.NoRoom(err) {
			l.undoLoad(ld)
		} else {
			l.fail(err)
		}
		return err
	}
	l.st = ld.st
	l.segs.Store(&ld.segs)
	l.syncMu.Lock()
	l.seals, l.unsealed = ld.seals, ld.unsealed
	l.syncMu.Unlock()
	return nil
}

// undoLoad has the next load begin anew. What this one has written need not be on the disk, and nobody may hear of it any more. mu is held.
func (l *Log) undoLoad(ld *loader) {
	for _, s := range ld.segs {
		s.Close()
	}
	l.pub.forgetOpen()
	l.unsure = true
}

// publish lets everybody have what find has found, all of which is durable. mu is held.
func (l *Log) publish(ld *loader) {
	l.item.Init(l, ld.st.end)
	l.pub.mu.Lock()
	m := mark{start: ld.start, end: place{offset: ld.st.end}}
	if a := l.active(); a != nil {
		m.end.seg, m.end.pos = a.Base(), a.Size()
	}
	m.hw = m.end
	l.pub.write(m)
	l.pub.mu.Unlock()
	l.loaded.Store(true)
	ld.shred()
}

// shred has the bytes of files go that are no longer part of the log, once that is durable: a segment that came back cut would be damage.
func (ld *loader) shred() {
	if len(ld.gone) == 0 {
		return
	}
	if err := ld.syncDir(); err != nil {
		ld.l.e.cfg.Logger.Warn("files could not be removed", "log", ld.l.name(), "error", err)
		return
	}
	ld.l.shredLater(ld.gone, nil, 0)
}

// loader is one load.
type loader struct {
	l     *Log
	st    *state
	fs    vfs.FS
	dir   string
	segs  []*segment.Segment
	start int64

	bases, snapshots []int64
	scannedFrom      int64        // offset from which segments were scanned, -1: none was
	seals, unsealed  []seal       // see Log
	epochs           []epochStart // what the file has
	gone             []string     // files whose bytes are to go in the background
	damage           error        // what a cut tail looked like
	now              int64        // when the load began, in ms

	holes  bool // what is scanned may have been compacted
	failed bool // what is kept is written again: see Log.markFailed
	// later: whoever loads syncs the whole file system before anybody can read what was found, so nothing is synced here that nothing here
	// relies on.
	later    bool
	progress func(n int64) // may be nil
	untold   int64         // bytes scanned since it was told

	// Of a load with later.
	unsaved error // why the files of a clean log are not there
	shown   int64 // log end as published
}

// progressStep is how much is scanned between two calls of progress.
const progressStep = 1 << 20

// tell counts scanned bytes.
func (ld *loader) tell(n int) {
	if ld.untold += int64(n); ld.untold >= progressStep && ld.progress != nil {
		ld.progress(ld.untold)
		ld.untold = 0
	}
}

func (ld *loader) load() error {
	l := ld.l
	j := l.e.journal.get(l.name())
	if !j.is(l.spec.TopicID) {
		j = journalEntry{} // of a deleted topic of this name; the line that took it back was lost with the power
		l.e.journal.forget(l.name())
		l.e.cleaner.forget(l)
	}
	ld.start, ld.failed = j.start, j.failed || l.unsure
	ld.holes, ld.scannedFrom = j.holes, -1
	ld.now = l.e.cfg.Clock().UnixMilli()
	entries, err := ld.fs.ReadDir(ld.dir)
	if errors.Is(err, fs.ErrNotExist) {
		ld.st.end, ld.st.marked = ld.start, j.dirty
		ld.st.epochs.assign(l.spec.LeaderEpoch, ld.st.end)
		return nil
	}
	if err != nil {
		return err
	}
	owner, err := ld.owner()
	if err != nil {
		return err
	}
	if owner != ours {
		ld.disown(owner, j.dirty)
		return nil
	}
	ld.st.dirMade = true
	ld.st.marked = j.dirty
	if entries, err = ld.finishSwaps(entries); err != nil {
		return err
	}
	if err := ld.sortFiles(entries); err != nil {
		return err
	}
	if err := ld.redo(&j); err != nil {
		return err
	}
	recovery := int64(1<<63 - 1)
	if j.dirty {
		recovery = j.recovery
	}
	if err := ld.openSegments(recovery); err != nil {
		return err
	}
	if err := ld.settle(j.dirty); err != nil {
		return err
	}
	if err := ld.rebuild(); err != nil || j.dirty || ld.scannedFrom < 0 || len(ld.segs) == 0 {
		return err
	}
	// Scanned though clean: the line that said dirty is lost. The next start would not scan again, so what was found goes to the files.
	if err := ld.segs[len(ld.segs)-1].Checkpoint(); err != nil {
		return err
	}
	return ld.fs.SyncDir(ld.dir)
}

// syncDir makes the names in the directory durable.
func (ld *loader) syncDir() error {
	if ld.later {
		return nil
	}
	return ld.fs.SyncDir(ld.dir)
}

// settle finds the start and the end of the log from its segments, and makes their names durable if they need not be.
func (ld *loader) settle(dirty bool) error {
	l := ld.l
	if len(ld.segs) > 0 {
		ld.start = max(ld.start, ld.segs[0].Base())
		ld.st.end = ld.segs[len(ld.segs)-1].Next()
	}
	if ld.st.end < ld.start {
		// The log start is durable before the batches that it covers need be: nothing of what is left counts.
		if err := ld.dropAll(); err != nil {
			return err
		}
	}
	if ld.damage != nil {
		l.e.cfg.Logger.Warn("cut a torn tail", "log", l.name(), "end", ld.st.end, "error", ld.damage)
	}
	if !dirty {
		return nil
	}
	// What a killed process left may not be durable yet: data is (see keep), names are now. That of the directory is since Open.
	if ld.failed {
		if err := l.writeMetadata(); err != nil {
			return err
		}
	}
	if ld.later {
		return nil
	}
	if err := l.syncMetadata(); err != nil {
		return err
	}
	return ld.fs.SyncDir(ld.dir)
}

// owner is whose directory a start found.
type owner int

const (
	ours    owner = iota
	another       // topic's
	nobodys       // it was made just before the power went, and nothing in it was acknowledged as durable; or somebody emptied the file
)

// topicIDKey begins the line of partition.metadata that says whose the directory is.
const topicIDKey = "topic_id: "

// owner asks partition.metadata. One that is missing or damaged is made again. One that is empty or all zeros was never durable: names
// of a directory become durable in order, so it was there before the segments, and no commit passes it. The directory may be that of a
// topic of this name that was deleted since.
func (ld *loader) owner() (owner, error) {
	o, found, err := ld.l.readOwner()
	if err != nil || found {
		return o, err
	}
	// Durable at once: no line says that this log is dirty, so that a start after a kill would not make it so.
	if err := vfs.WriteFile(ld.fs, ld.dir, metadataName, ld.l.metadata()); err != nil {
		return ours, err
	}
	ld.l.e.rootNew.Store(true)
	return ours, ld.l.e.syncRoot()
}

// readOwner reads partition.metadata. found is false when it is missing or damaged: then the log's name decides.
func (l *Log) readOwner() (o owner, found bool, err error) {
	b, err := vfs.ReadFile(l.e.cfg.FS, l.dir()+"/"+metadataName, smallFileMax)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return ours, false, err
	}
	if !missing && len(bytes.TrimLeft(b, "\x00")) == 0 {
		return nobodys, true, nil
	}
	for line := range strings.Lines(string(b)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), topicIDKey); ok && len(id) == 22 {
			if id != topicID(l.spec.TopicID) && l.spec.TopicID != [16]byte{} {
				return another, true, nil
			}
			return ours, true, nil
		}
	}
	return ours, false, nil
}

// disown sets a directory aside: the log is as if there were none.
func (ld *loader) disown(o owner, dirty bool) {
	l := ld.l
	if o == another {
		l.e.cfg.Logger.Warn("directory belongs to another topic id, setting it aside", "log", l.name())
		l.e.journal.forget(l.name())
		l.e.cleaner.forget(l)
		ld.start, dirty = 0, false
		l.e.setAside(ld.dir, nil, 0)
	} else {
		l.e.strand(ld.dir)
	}
	ld.st.end, ld.st.marked = ld.start, dirty
	ld.st.epochs.assign(l.spec.LeaderEpoch, ld.st.end)
}

// sortFiles collects segments and snapshots, and removes what a crash left: temporary files, indexes without a log. Files that were being
// removed are for the background.
func (ld *loader) sortFiles(entries []vfs.DirEntry) error {
	logs := map[int64]bool{}
	for _, d := range entries {
		if base, suffix, ok := segment.ParseName(d.Name); ok && suffix == segment.LogSuffix {
			logs[base] = true
			ld.bases = append(ld.bases, base)
		}
	}
	for _, d := range entries {
		base, suffix, ok := segment.ParseName(d.Name)
		switch {
		case ok && suffix == segment.SnapshotSuffix:
			ld.snapshots = append(ld.snapshots, base)
		case strings.HasSuffix(d.Name, deletedSuffix):
			ld.gone = append(ld.gone, d.Name)
		case ok && suffix != segment.LogSuffix && !logs[base], strings.HasSuffix(d.Name, ".tmp"):
			if err := ld.fs.Remove(ld.dir + "/" + d.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	sortInt64(ld.bases)
	sortInt64(ld.snapshots)
	return nil
}

func (ld *loader) openSegments(recovery int64) error {
	l := ld.l
	cfg := l.cfg.Load()
	sealed := recovery // what ends before it is whole, and may have been compacted
	told := ld.toldFrom()
	for i, base := range ld.bases {
		s := l.e.files.New(l.e.cfg.Format, ld.dir, base, l.e.cfg.Clock())
		lastOne := i == len(ld.bases)-1
		switch {
		case !lastOne && ld.bases[i+1] <= told:
			if err := ld.discard(s); err != nil {
				return err
			}
			continue
		case !lastOne && ld.bases[i+1] <= recovery:
			err := s.Open(ld.bases[i+1])
			if errors.Is(err, segment.ErrTxnIndex) {
				recovery = base // as if it were dirty from here on
				break
			}
			if err != nil {
				return err
			}
			if ld.bases[i+1] > ld.start { // otherwise it is behind the log start and retention takes it
				ld.segs = append(ld.segs, s)
			} else if err := ld.discard(s); err != nil {
				return err
			}
			continue
		case recovery == 1<<63-1:
			res, err := s.OpenTail(cfg.IndexIntervalBytes)
			if errors.Is(err, segment.ErrTxnIndex) {
				break
			}
			if err != nil {
				return err
			}
			if res.File == res.End {
				ld.segs = append(ld.segs, s)
				continue
			}
			// Not what a clean close leaves: the line that says dirty was lost with the power.
		}
		res, err := ld.scan(s, cfg)
		if err != nil {
			return err
		}
		if err := ld.keep(s, res); err != nil {
			return err
		}
		if res.Torn || !lastOne && (res.Next > ld.bases[i+1] || res.Next < ld.bases[i+1] && ld.bases[i+1] > sealed && !ld.mayHaveHoles(cfg, res)) {
			return ld.cutAfter(i, res)
		}
		if !lastOne {
			if err := ld.rolled(s, ld.bases[i+1], ld.bases[i+1] > sealed); err != nil {
				return err
			}
		}
	}
	return nil
}

// rolled leaves a scanned segment as a roll does, with a snapshot at the next: a later start that scans only what follows, or finds this
// segment gone, begins from it. A full disk has no room for that and is no reason not to read the log: the recovery point stays before the
// segment until it is sealed, with the snapshot. One that the recovery point has passed already may be compacted at any time: no seal touches
// it, and the snapshot waits for a close or for retention.
func (ld *loader) rolled(s *segment.Segment, next int64, toSeal bool) error {
	unsealed := seal{segment: s, next: next}
	b := ld.st.producers.Snapshot(true)
	// One that has to be sealed is dirty: until all is synced nothing needs the snapshot.
	if err := ld.l.saveSnapshot(next, b, ld.later && toSeal); vfs.NoRoom(err) {
		unsealed.snapshot = b
	} else if err != nil {
		return err
	}
	if toSeal {
		ld.seals = append(ld.seals, unsealed)
	} else if unsealed.snapshot != nil {
		ld.unsealed = append(ld.unsealed, unsealed)
	}
	return nil
}

// toldFrom is the first offset of the last segment that has a usable snapshot and does not begin behind the log start: what comes before it is
// not needed, and must not be read if a removal was cut short: the snapshots of those that went are gone too. -1 if there is none.
func (ld *loader) toldFrom() int64 {
	for i := len(ld.snapshots) - 1; i >= 0; i-- {
		at := ld.snapshots[i]
		if _, base := slices.BinarySearch(ld.bases, at); !base || at > ld.start {
			continue
		}
		b, err := vfs.ReadFile(ld.fs, ld.dir+"/"+segment.FileName(at, segment.SnapshotSuffix), 1<<30)
		if s := (producer.State{}); err == nil && s.Load(b, ld.now) == nil {
			return at
		}
	}
	return -1
}

// discard takes a segment that is behind the log start out of the directory.
func (ld *loader) discard(s *segment.Segment) error {
	name, err := s.Discard()
	if name != "" {
		ld.gone = append(ld.gone, name)
	}
	return err
}

// scan verifies a segment, and takes its batches into account in the same pass: reading them again would cost as much.
func (ld *loader) scan(s *segment.Segment, cfg *LogConfig) (segment.ScanResult, error) {
	if ld.scannedFrom < 0 {
		ld.scannedFrom = s.Base()
		if err := ld.replayOpened(s.Base()); err != nil {
			return segment.ScanResult{}, err
		}
	}
	return s.Scan(segment.ScanOptions{Verify: true, Index: true, Interval: cfg.IndexIntervalBytes,
		Batch: func(info *BatchInfo, _ int64, data []byte) error {
			ld.tell(info.Size)
			return ld.replay(s, info, data, true)
		}})
}

// mayHaveHoles tells whether a segment whose batches end before the next segment begins was compacted. Otherwise its end was
// lost: the power went before it was synced, while the segment after it, or only its name, was on the disk. What this engine's journal has
// scanned was never compacted.
func (ld *loader) mayHaveHoles(cfg *LogConfig, res segment.ScanResult) bool {
	return ld.holes && cfg.Compact && res.End > 0 && res.File == res.End
}

// keep makes what a scan found durable, before anybody can read it.
func (ld *loader) keep(s *segment.Segment, res segment.ScanResult) error {
	ld.segs = append(ld.segs, s)
	if res.Torn {
		ld.damage = res.Damage
	}
	if ld.failed {
		if err := s.Rewrite(); err != nil {
			return err
		}
	}
	return s.Recovered(ld.later)
}

// cutAfter removes all segments after a damaged one: offsets must not have holes that were never compacted. Whole and at once, not in slices as
// retention does: nobody is served by this log before it is done, and a crash must not bring one of them back.
func (ld *loader) cutAfter(i int, res segment.ScanResult) error {
	if ld.damage == nil {
		ld.damage = fmt.Errorf("segment %d ends at %d, the next begins at %d", ld.bases[i], res.Next, ld.bases[i+1])
	}
	for _, base := range ld.bases[i+1:] {
		s := ld.l.e.files.New(ld.l.e.cfg.Format, ld.dir, base, ld.l.e.cfg.Clock())
		if err := s.Remove(); err != nil {
			return err
		}
	}
	if len(ld.bases) > i+1 {
		return ld.syncDir()
	}
	return nil
}

func (ld *loader) dropAll() error {
	for _, s := range ld.segs {
		if err := s.Remove(); err != nil {
			return err
		}
	}
	ld.segs, ld.seals, ld.unsealed, ld.st.end = nil, nil, nil, ld.start
	if err := ld.syncDir(); err != nil || ld.scannedFrom < 0 {
		return err
	}
	// What the scan said of producers goes with it.
	ld.st.producers, ld.st.snapshot = producer.State{}, -1
	ld.l.pub.forgetOpen()
	return ld.replayOpened(min(ld.scannedFrom, ld.st.end))
}

// rebuild brings producers, transactions and epochs to what the log says.
func (ld *loader) rebuild() error {
	st, l := ld.st, ld.l
	if ld.scannedFrom < 0 {
		if err := ld.replayOpened(st.end); err != nil {
			return err
		}
	}
	for _, at := range ld.snapshots {
		if at <= st.end {
			continue
		}
		if err := ld.fs.Remove(ld.dir + "/" + segment.FileName(at, segment.SnapshotSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	st.epochs.cutEnd(st.end)
	st.epochs.cutStart(ld.start)
	st.epochs.compare(ld.epochs)
	st.epochs.begin(l.spec.LeaderEpoch, st.end)
	return nil
}

// replayOpened begins with the newest snapshot that is not after end, and takes into account what the segments opened so far, which end
// there, have besides. Epochs that begin at the end or after it are for a scan to tell.
func (ld *loader) replayOpened(end int64) error {
	st, l := ld.st, ld.l
	var err error
	if ld.epochs, err = st.epochs.load(ld.fs, ld.dir); err != nil {
		return err
	}
	st.epochs.cutEnd(end)
	from, err := ld.loadSnapshot(end)
	if err != nil {
		return err
	}
	st.producers.Open(func(id, first int64) { l.pub.begin(id, first) })
	for _, s := range ld.segs {
		if s.Next() <= from {
			continue
		}
		if err := ld.replaySegment(s, from); err != nil {
			return err
		}
	}
	return nil
}

// replaySegment goes over the headers of the batches from an offset on; of control batches it reads the rest too.
func (ld *loader) replaySegment(s *segment.Segment, from int64) error {
	return s.Walk(from, func(info *BatchInfo, batch func() ([]byte, error)) error {
		var data []byte
		if info.Control && info.ProducerID >= 0 {
			var err error
			if data, err = batch(); err != nil {
				return err
			}
		}
		return ld.replay(s, info, data, false)
	})
}

// loadSnapshot takes the newest snapshot that is usable and not after limit.
func (ld *loader) loadSnapshot(limit int64) (from int64, err error) {
	for i := len(ld.snapshots) - 1; i >= 0; i-- {
		at := ld.snapshots[i]
		if at > limit {
			continue
		}
		name := ld.dir + "/" + segment.FileName(at, segment.SnapshotSuffix)
		b, err := vfs.ReadFile(ld.fs, name, 1<<30)
		if err != nil {
			return 0, err
		}
		if err = ld.st.producers.Load(b, ld.now); err == nil {
			ld.st.snapshot = at
			return at, nil
		}
		ld.l.e.cfg.Logger.Warn("producer snapshot is not usable, rebuilding from the log", "log", ld.l.name(), "snapshot", at, "error", err)
		if !errors.Is(err, producer.ErrSnapshot) {
			return 0, err
		}
		if err := ld.fs.Remove(name); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// replay takes a stored batch into account; data is the whole of it if it is a control batch.
func (ld *loader) replay(s *segment.Segment, b *BatchInfo, data []byte, scanned bool) error {
	st, pub := ld.st, &ld.l.pub
	st.epochs.assign(b.LeaderEpoch, b.BaseOffset)
	if b.ProducerID < 0 {
		return nil
	}
	if !b.Control {
		if st.producers.Append(b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.LastOffsetDelta, b.LastOffset(), b.MaxTimestamp, ld.now, b.Transactional) {
			pub.begin(b.ProducerID, b.BaseOffset)
		}
		return nil
	}
	commit, epoch, ok := ld.l.e.cfg.Format.ControlType(data)
	if !ok {
		return nil
	}
	first := st.producers.Marker(b.ProducerID, b.ProducerEpoch, epoch, b.MaxTimestamp, ld.now)
	if first < 0 {
		return nil
	}
	pub.finish(b.ProducerID, b.BaseOffset)
	if scanned && !commit {
		s.AddAborted(segment.AbortedTxn{ProducerID: b.ProducerID, FirstOffset: first, LastOffset: b.BaseOffset, LastStable: pub.stableAfter(b.BaseOffset)})
	}
	return nil
}
