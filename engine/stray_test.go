package engine

import (
	"os"
	"slices"
	"testing"
	"time"
)

// TestStrayAgainstNewLog: regressions 17 and 78. The removal of directories that nobody owns, which goes on in the background of a start,
// does not take the directory of a log of that name that begins meanwhile.
func TestStrayAgainstNewLog(t *testing.T) {
	f := newFixture(t)
	if err := os.MkdirAll(f.cfg.Dir+"/t-0", 0o755); err != nil {
		t.Fatal(err)
	}
	appended := make(chan Entry, 1)
	var l *Log
	f.e.RemoveStray(func(dir string) bool {
		if dir != "t-0" {
			return true
		}
		// Right after this answer, and before anything follows from it, the topic is made and written to.
		l = f.log(true, nil)
		go func() { appended <- tryAppend(l, spec{})[0] }()
		select {
		case e := <-appended:
			appended <- e
		case <-time.After(100 * time.Millisecond): // it waits for the removal
		}
		return false
	})
	if e := <-appended; e.Err != nil || e.BaseOffset != 0 {
		t.Fatalf("append: %+v", e)
	}
	f.append(l, spec{})
	if !f.e.journal.dirty("t-0") {
		t.Error("the removal took back that the new log is dirty")
	}
	f.e.reaper.wait()
	f.kill()
	if got := f.readAll(f.reopen(nil), 0); !slices.Equal(got, []int64{0, 1}) {
		t.Errorf("the new log holds %v", got)
	}
}
