package engine

import (
	"fmt"

	"kaas/engine/vfs"
)

// Imported is what the journal must say of a log that another program wrote in Kafka's layout.
type Imported struct {
	Name     string // of its directory
	Dirty    bool   // that program may not have left it whole: it is scanned from Recovery on at the next start
	Recovery int64  // offset up to which everything was synced; meaningless unless Dirty
	Start    int64  // log start offset, 0: that of the first segment
}

// WriteJournal makes the journal of a data directory that another program wrote (FORMAT.md §3), in place of any that is
// there. It is durable when WriteJournal returns. The caller holds the directory's lock.
func WriteJournal(f vfs.FS, dir string, logs []Imported) error {
	var b []byte
	for _, l := range logs {
		e := journalEntry{dirty: l.Dirty, holes: l.Dirty, start: l.Start}
		if l.Dirty {
			e.recovery = l.Recovery
		}
		if e.recovery < 0 || e.start < 0 {
			return fmt.Errorf("engine: %s: negative offset", l.Name)
		}
		if e != (journalEntry{}) {
			b = appendLine(b, l.Name, e)
		}
	}
	return vfs.WriteFile(f, dir, journalName, b)
}

// JournalName is the name of the journal in a data directory.
const JournalName = journalName
