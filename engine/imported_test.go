package engine

import (
	"testing"

	"kaas/engine/vfs"
)

// TestWriteJournal: what was written for an import is what a start reads.
func TestWriteJournal(t *testing.T) {
	dir := t.TempDir()
	logs := []Imported{
		{Name: "orders-0", Dirty: true, Recovery: 47},
		{Name: "clean-0", Recovery: 9},
		{Name: "deleted-some-0", Start: 17},
		{Name: "both-1", Dirty: true, Recovery: 3, Start: 2},
	}
	if err := WriteJournal(vfs.OS, dir, logs); err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(vfs.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]journalEntry{
		"orders-0":       {dirty: true, holes: true, recovery: 47},
		"clean-0":        {},
		"deleted-some-0": {start: 17},
		"both-1":         {dirty: true, holes: true, recovery: 3, start: 2},
	}
	for name, e := range want {
		if got := j.get(name); got != e {
			t.Errorf("%s: %+v, want %+v", name, got, e)
		}
	}
	if len(j.entries) != 3 {
		t.Errorf("%d entries, want 3: a clean log has none", len(j.entries))
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if err := WriteJournal(vfs.OS, dir, []Imported{{Name: "x-0", Start: -1}}); err == nil {
		t.Error("a negative offset was taken")
	}
}
