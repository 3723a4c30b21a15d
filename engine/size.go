package engine

import (
	"errors"
	"io/fs"
	"math"
	"slices"

	"kaas/engine/segment"
)

// StoredBytes is the size of the log's data in bytes, whether it is loaded or not: of a log that nobody has used since the start it asks the
// file system, once, and does not load it. Such a log is clean, so its files are as long as their data. A log that went offline after it was
// loaded can be read, and so has a size; of another that is offline the error says why. It may block.
func (l *Log) StoredBytes() (int64, error) {
	f := l.failed.Load()
	if f != nil && (f.err == ErrDeleted || f.err == ErrClosed) {
		return 0, f.err
	}
	if l.loaded.Load() {
		return l.SizeBytes(), nil
	}
	if f != nil {
		return 0, f.err
	}
	if n := l.stored.Load(); n > 0 {
		return n - 1, nil
	}
	n, err := l.listedBytes()
	if err != nil {
		return 0, err
	}
	if l.loaded.Load() { // and perhaps written to, meanwhile
		return l.SizeBytes(), nil
	}
	l.stored.Store(n + 1)
	return n, nil
}

// listedBytes adds up the segments that are not behind the log start.
func (l *Log) listedBytes() (sum int64, err error) {
	entries, err := l.e.cfg.FS.ReadDir(l.dir())
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return 0, err
	}
	if len(entries) > 0 {
		if o, _, err := l.readOwner(); err != nil || o != ours {
			return 0, err // an earlier topic's of this name: a load sets it aside
		}
	}
	var bases []int64
	for _, d := range entries {
		if base, suffix, ok := segment.ParseName(d.Name); ok && suffix == segment.LogSuffix {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	bases = append(bases, math.MaxInt64)
	start := int64(0)
	if j := l.e.journal.get(l.name()); j.is(l.spec.TopicID) {
		start = j.start
	}
	for i, base := range bases[:len(bases)-1] {
		if bases[i+1] <= start {
			continue
		}
		n, err := l.e.cfg.FS.Size(l.dir() + "/" + segment.FileName(base, segment.LogSuffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it goes just now
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
