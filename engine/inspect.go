package engine

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"

	"kaas/engine/vfs"
)

// JournalLine is what the journal says of one log (FORMAT.md §3).
type JournalLine struct {
	Name     string // of its directory
	Dirty    bool
	Failed   bool     // dirty, and a sync of it failed: what a start keeps of it is written again
	Recovery int64    // offset from which it is scanned, if dirty
	Start    int64    // log start offset, 0: that of the first segment
	TopicID  [16]byte // zero: whoever has the name
}

// ReadJournal reads the journal of a data directory without changing it, for tools: the last word on each log, in order of names, and
// where lines lie that do not verify. A missing journal has no lines.
func ReadJournal(f vfs.FS, dir string) (logs []JournalLine, bad []int64, err error) {
	b, err := vfs.ReadFile(f, dir+"/"+journalName, journalMax)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	j := &journal{entries: map[string]journalEntry{}}
	for at := 0; at < len(b); {
		line, _, whole := bytes.Cut(b[at:], []byte{'\n'})
		before := j.lines
		if j.apply(line); j.lines == before || !whole {
			bad = append(bad, int64(at))
		}
		at += len(line) + 1
	}
	for name, e := range j.entries {
		logs = append(logs, JournalLine{Name: name, Dirty: e.dirty, Failed: e.failed, Recovery: e.recovery, Start: e.start, TopicID: e.topic})
	}
	slices.SortFunc(logs, func(a, b JournalLine) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return logs, bad, nil
}

// Rescan makes the next Recover read a log from its first batch on and build its indexes, snapshots and epochs again, whatever the
// journal says of it: for tools, before the log is loaded. The log is expected to be no longer than its files say.
func (e *Engine) Rescan(l *Log) error {
	return e.journal.update(l.name(), func(j *journalEntry) {
		j.claim(l.spec.TopicID)
		j.dirty, j.holes, j.recovery = true, true, 0
	})
}
