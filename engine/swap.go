package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"kaas/engine/segment"
	"kaas/engine/vfs"
)

// inDir runs background work on names in the log's directory, unless the log was deleted: then the names are another's.
func (l *Log) inDir(work func() error) error {
	l.pathMu.Lock()
	defer l.pathMu.Unlock()
	if l.Err() == ErrDeleted {
		return ErrDeleted
	}
	return work()
}

// claim keeps a group of segments from retention until release, if all are in the log and none is the active one.
func (l *Log) claim(group []*segment.Segment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(*l.segs.Load(), group[0])
	if l.failed.Load() != nil || at < 0 {
		return false
	}
	l.st.claimed = group[0]
	return true
}

// release lets retention have what it was kept from.
func (l *Log) release() {
	l.mu.Lock()
	l.st.claimed = nil
	var gone []*segment.Segment
	if l.failed.Load() == nil {
		gone = l.detach(l.pub.read().start)
	}
	l.mu.Unlock()
	if len(gone) > 0 {
		l.e.later(l.cfg.Load().FileDeleteDelayMs, func() { l.removeSegments(gone) })
	}
}

// swapping is a swap whose cleaned segment has become the truth: what is left is to be done, and is tried until there is room for it.
type swapping struct {
	group   []*segment.Segment
	cleaned *segment.Segment
	next    int64    // offset after its last batch
	old     []string // log files that have lost their names
	done    int      // steps
}

// swap puts a finished cleaned segment in the place of the group it was made from: on disk by the steps that FORMAT.md §8
// states, in memory in one. next is the offset after its last batch. The names of the directory are held for one step at a
// time. An error before the cleaned segment has become the truth leaves the log as it was; a later one takes it offline, and the
// next start does the rest, save for a lack of room: then the cleaner does it when there is some.
func (l *Log) swap(group []*segment.Segment, cleaned *segment.Segment, next int64) error {
	if !l.claim(group) {
		return errors.Join(errGone, l.abandon(cleaned))
	}
	err := l.inDir(func() error { return errors.Join(cleaned.AdvanceIndexes(), l.e.cfg.FS.SyncDir(l.dir())) })
	if err == nil {
		err = l.inDir(cleaned.AdvanceLog)
	}
	if err != nil {
		l.release()
		return errors.Join(err, l.abandon(cleaned))
	}
	return l.finishSwap(&swapping{group: group, cleaned: cleaned, next: next})
}

// finishSwap goes on with a swap where it is. The log's segments stay claimed until it ends.
func (l *Log) finishSwap(s *swapping) error {
	for steps := l.swapSteps(s); s.done < len(steps); s.done++ {
		err := steps[s.done]()
		switch {
		case err == nil:
			continue
		case errors.Is(err, ErrDeleted):
			s.cleaned.Retire()
			err = ErrDeleted
		case vfs.NoRoom(err):
			l.e.cleaner.putOff(l, s)
			return fmt.Errorf("a swap after compaction: %w", err)
		default:
			l.fail(fmt.Errorf("%w: a swap after compaction: %w", ErrStorage, err))
		}
		l.release()
		return err
	}
	s.cleaned.Settle()
	l.release()
	l.shredLater(s.old, s.group, 0)
	return nil
}

// swapSteps are the steps from where the cleaned segment is the truth. Each can be repeated after it has failed.
func (l *Log) swapSteps(s *swapping) []func() error {
	return []func() error{
		func() error { return l.inDir(l.syncEntries) },
		func() error { return l.publishSwap(s.group, s.cleaned) },
		func() error { return l.removeSwapped(s.group, s.next, &s.old) },
		func() error { return l.inDir(s.cleaned.AdvanceIndexes) },
		func() error { return l.inDir(l.syncEntries) },
		func() error { return l.inDir(func() error { return discardLog(s.group[0], &s.old) }) },
		func() error { return l.inDir(s.cleaned.AdvanceLog) },
		func() error { return l.inDir(l.syncEntries) },
	}
}

// discardLog takes the name of a segment's log file away, and notes the one it has until it is removed.
func discardLog(s *segment.Segment, old *[]string) error {
	name, err := s.DiscardLog()
	if name != "" {
		*old = append(*old, name)
	}
	return err
}

// syncEntries makes the names in the log's directory durable. pathMu is held.
func (l *Log) syncEntries() error { return l.e.cfg.FS.SyncDir(l.dir()) }

// abandon gives up a cleaned segment that has not become the truth.
func (l *Log) abandon(cleaned *segment.Segment) error {
	err := l.inDir(cleaned.Abandon)
	if errors.Is(err, ErrDeleted) { // its files went with the directory
		cleaned.Retire()
	}
	return err
}

var errGone = errors.New("engine: segments to be cleaned are gone")

// publishSwap lets readers have the cleaned segment. Those that hold files of the old ones go on with them.
func (l *Log) publishSwap(group []*segment.Segment, cleaned *segment.Segment) error {
	if err := l.replace(group, cleaned); err != nil {
		return err
	}
	for _, s := range group { // waits for those that are opening one by its name, before that is another's
		l.e.memory.Add(-s.Size())
		s.Retire()
	}
	return nil
}

func (l *Log) replace(group []*segment.Segment, cleaned *segment.Segment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Err() == ErrDeleted {
		return ErrDeleted
	}
	old := *l.segs.Load()
	at := slices.Index(old, group[0])
	if at < 0 {
		panic(fmt.Sprintf("BUG: %s: segment %d was claimed and is gone", l.name(), group[0].Base()))
	}
	segs := append(make([]*segment.Segment, 0, len(old)), old[:at]...)
	segs = append(append(segs, cleaned), old[at+len(group):]...)
	l.segs.Store(&segs)
	l.st.claimed = cleaned
	l.e.memory.Add(cleaned.Size())
	return nil
}

// removeSwapped removes the files of a group but those of its first segment, whose names the cleaned one takes over. next is
// the offset after the last batch of that: up to there a start would remove them too. Of those after it, of which nothing
// is left, the log files go one at a time, in order, each durably: what a later one replaced, or aborted, must not be left without it.
func (l *Log) removeSwapped(group []*segment.Segment, next int64, old *[]string) error {
	for _, s := range group[1:] {
		err := l.inDir(func() error {
			err := discardLog(s, old)
			if err == nil && s.Base() >= next {
				err = l.syncEntries()
			}
			if err != nil {
				return err
			}
			return errors.Join(s.Remove(), l.removeSnapshot(s.Base()))
		})
		if err != nil {
			return err
		}
	}
	return l.inDir(l.syncEntries)
}

// removeSnapshot removes the snapshot at the base of a segment that is gone. pathMu is held.
func (l *Log) removeSnapshot(base int64) error {
	err := l.e.cfg.FS.Remove(l.dir() + "/" + segment.FileName(base, segment.SnapshotSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// finishSwaps does what a crash in the middle of a swap left to do, and removes what never became the truth. It returns
// what is in the directory then.
func (ld *loader) finishSwaps(entries []vfs.DirEntry) ([]vfs.DirEntry, error) {
	var drop []string
	var swaps []int64
	for _, d := range entries {
		base, suffix, ok := segment.ParseName(strings.TrimSuffix(d.Name, segment.SwapSuffix))
		switch {
		case strings.HasSuffix(d.Name, segment.CleanedSuffix):
			drop = append(drop, d.Name)
		case !ok || !strings.HasSuffix(d.Name, segment.SwapSuffix):
		case suffix == segment.LogSuffix:
			swaps = append(swaps, base)
		}
	}
	for _, d := range entries {
		base, suffix, ok := segment.ParseName(strings.TrimSuffix(d.Name, segment.SwapSuffix))
		if ok && strings.HasSuffix(d.Name, segment.SwapSuffix) && suffix != segment.LogSuffix && !slices.Contains(swaps, base) {
			drop = append(drop, d.Name)
		}
	}
	for _, name := range drop {
		if err := ld.fs.Remove(ld.dir + "/" + name); err != nil {
			return nil, err
		}
	}
	for _, base := range swaps {
		if err := ld.finishSwap(base, entries); err != nil {
			return nil, err
		}
	}
	if len(drop)+len(swaps) == 0 {
		return entries, nil
	}
	return ld.fs.ReadDir(ld.dir)
}

// finishSwap makes the segment of a .log.swap file take the place of those whose offsets it covers.
func (ld *loader) finishSwap(base int64, entries []vfs.DirEntry) error {
	l := ld.l
	s := l.e.files.OpenSwap(l.e.cfg.Format, ld.dir, base, l.e.cfg.Clock())
	defer s.Close()
	res, err := s.Scan(segment.ScanOptions{Verify: true, Interval: math.MaxInt})
	if err == nil && res.End != res.File {
		err = fmt.Errorf("a cleaned segment is damaged: %w", res.Damage)
	}
	if err != nil {
		return err
	}
	for _, d := range entries {
		if b, _, ok := segment.ParseName(d.Name); ok && b > base && b < res.Next {
			if err := ld.fs.Remove(ld.dir + "/" + d.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	for _, step := range []func() error{s.AdvanceIndexes, s.AdvanceLog} {
		// Before each: the segments that are gone, then the indexes, have to be so when the log takes its name.
		if err := ld.fs.SyncDir(ld.dir); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	l.e.cfg.Logger.Info("finished a swap after compaction", "log", l.name(), "segment", base)
	return ld.fs.SyncDir(ld.dir)
}
