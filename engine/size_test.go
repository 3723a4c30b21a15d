package engine

import (
	"testing"
)

// TestStoredBytes: the size of a log is the same before it is loaded as after, and asking does not load it.
func TestStoredBytes(t *testing.T) {
	f := newFixture(t)
	empty := f.e.OpenLog(LogSpec{Topic: "empty", New: true})
	l := f.log(true, small(10_000))
	f.fill(l, 4)
	c := *l.Config()
	c.FileDeleteDelayMs = 3600_000 // the files stay, and do not count
	l.SetConfig(&c)
	if _, err := l.DeleteRecords(l.Segments()[2].BaseOffset + 2); err != nil {
		t.Fatal(err)
	}
	want := l.SizeBytes()
	if n, err := l.StoredBytes(); n != want || err != nil || want == 0 {
		t.Errorf("loaded: %d, %v, want %d", n, err, want)
	}
	if n, err := empty.StoredBytes(); n != 0 || err != nil {
		t.Errorf("empty: %d, %v", n, err)
	}
	f.close()
	f.open()
	empty = f.e.OpenLog(LogSpec{Topic: "empty"})
	l = f.log(false, small(10_000))
	for range 2 {
		if n, err := l.StoredBytes(); n != want || err != nil || l.Loaded() {
			t.Errorf("not loaded: %d, %v, want %d; loaded %v", n, err, want, l.Loaded())
		}
		if n, err := empty.StoredBytes(); n != 0 || err != nil {
			t.Errorf("empty: %d, %v", n, err)
		}
	}
	f.append(l, spec{size: 139})
	if n, err := l.StoredBytes(); n != want+200 || err != nil {
		t.Errorf("after an append: %d, %v, want %d", n, err, want+200)
	}
	l.fail(errIO)
	if n, err := l.StoredBytes(); n != want+200 || err != nil {
		t.Errorf("offline: %d, %v, want %d", n, err, want+200)
	}
	empty.fail(errIO)
	if _, err := empty.StoredBytes(); err != errIO {
		t.Errorf("offline and never loaded: %v", err)
	}
	f.e.Remove(l)
	if _, err := l.StoredBytes(); err != ErrDeleted {
		t.Errorf("removed: %v", err)
	}
}

// TestStoredBytesOfAnEarlierTopic: what an earlier topic of the same name has left on the disk is not the log's, before a load sets it aside
// as after.
func TestStoredBytesOfAnEarlierTopic(t *testing.T) {
	f := newFixture(t)
	l := f.log(true, nil)
	f.append(l, spec{size: 500})
	f.close()
	f.open()
	other := f.e.OpenLog(LogSpec{Topic: "t", TopicID: [16]byte{2}})
	if n, err := other.StoredBytes(); n != 0 || err != nil || other.Loaded() {
		t.Errorf("not loaded: %d, %v; loaded %v", n, err, other.Loaded())
	}
	if err := other.Load(); err != nil {
		t.Fatal(err)
	}
	if n, err := other.StoredBytes(); n != 0 || err != nil {
		t.Errorf("loaded: %d, %v", n, err)
	}
}
