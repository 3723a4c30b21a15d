package compare

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStolenTime(t *testing.T) {
	before, err := parseTimes("cpu  10 0 20 50 5 0 5 10 7 7\ncpu0 1 1 1 1\n")
	if err != nil || before != (times{stolen: 10, all: 100}) {
		t.Fatalf("got %+v, %v", before, err)
	}
	after, err := parseTimes("cpu  60 0 20 90 5 0 5 20 7 7\n")
	if err != nil || before.stolenUntil(after) != 10 {
		t.Errorf("10 of 100 ticks were stolen: got %v %%, %v", before.stolenUntil(after), err)
	}
	if before.stolenUntil(before) != 0 {
		t.Error("in no time nothing is stolen")
	}
	if _, err := parseTimes("cpu 1 2 3\n"); err == nil {
		t.Error("a short line was taken for whole")
	}
	if _, err := readTimes(); err != nil {
		t.Error(err)
	}
}

func TestPressedBy(t *testing.T) {
	limits := "nr_dirty_threshold 300\nnr_dirty_background_threshold 100\n"
	for text, want := range map[string]bool{
		limits + "nr_dirty 150\nnr_writeback 50\n": false, limits + "nr_dirty 150\nnr_writeback 51\n": true, "nr_dirty 5\n": false,
	} {
		if pressedBy(text) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}

func TestNoteStalls(t *testing.T) {
	tn := turn{figures: map[string]float64{}}
	for _, line := range []string{
		"# HELP x", `kaas_log_write_duration_seconds_bucket{le="0.000008192"} 10`, `kaas_log_write_duration_seconds_bucket{le="0.008192"} 90`,
		`kaas_log_write_duration_seconds_bucket{le="0.011585"} 93`, `kaas_log_write_duration_seconds_bucket{le="0.067109"} 97`,
		`kaas_log_write_duration_seconds_bucket{le="0.268435"} 99`, `kaas_log_write_duration_seconds_bucket{le="+Inf"} 100`,
		"kaas_log_write_duration_seconds_count 100", "kaas_append_stalls_total 7",
	} {
		tn.noteStalls(line)
	}
	for figure, want := range map[string]float64{writesOver8ms: 10, writesOver67ms: 3, writesOver268ms: 1, stalledAppends: 7} {
		if got := tn.figures[figure]; got != want {
			t.Errorf("%s: %v, want %v", figure, got, want)
		}
	}
}

// What a reader has behind it is dropped in whole pieces, nothing before it, and all when it begins anew.
func TestDropBehind(t *testing.T) {
	f, err := os.CreateTemp(".", "drop-*") // the system's own directory may be in memory
	if err != nil {
		t.Fatal(err)
	}
	name, err := filepath.Abs(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(name)
	defer f.Close()
	if err := f.Truncate(3 * dropBytes); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	cached := func(pos int64) bool {
		var area unix.CachestatRange
		var stat unix.Cachestat_t
		area.Off, area.Len = uint64(pos), dropBytes
		if err := unix.Cachestat(uint(f.Fd()), &area, &stat, 0); err != nil {
			t.Skip("the kernel does not tell what is in the page cache:", err)
		}
		return stat.Cache > 0
	}
	if _, err := f.ReadAt(make([]byte, 3*dropBytes), 0); err != nil {
		t.Fatal(err)
	}
	o := &oldFiles{}
	o.files[1] = f
	for _, step := range []struct {
		bytes int64
		want  [3]bool
	}{
		{dropBytes - 1, [3]bool{true, true, true}}, {dropBytes, [3]bool{false, true, true}}, {2*dropBytes - 1, [3]bool{false, true, true}},
		{2 * dropBytes, [3]bool{false, false, true}}, {0, [3]bool{}}, {dropBytes - 1, [3]bool{}},
	} {
		if err := o.dropBehind(1, step.bytes); err != nil {
			t.Fatal(err)
		}
		if got := [3]bool{cached(0), cached(dropBytes), cached(2 * dropBytes)}; got != step.want {
			t.Errorf("after %d bytes the parts are cached: %v, want %v", step.bytes, got, step.want)
		}
	}
}
