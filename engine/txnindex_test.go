package engine

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

// TestTransactionIndexIsRebuilt: regressions 79. Aborted transactions are those of the log, whatever their index says that does not fit it.
func TestTransactionIndexIsRebuilt(t *testing.T) {
	damage := map[string]func(b []byte) []byte{
		"whole":       func(b []byte) []byte { return b },
		"odd":         func(b []byte) []byte { return b[:len(b)-5] },
		"garbage":     func(b []byte) []byte { return bytes.Repeat([]byte{0x5a}, len(b)) },
		"zeros":       func(b []byte) []byte { return make([]byte, len(b)) },
		"twice":       func(b []byte) []byte { return append(b, b...) },
		"other place": func(b []byte) []byte { b[2+8+6]++; return b }, // the first offset, beyond the last
	}
	for name, change := range damage {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/clean=%v", name, clean), func(t *testing.T) {
				f := newFixture(t)
				cfg := small(4000)
				l := f.log(true, cfg)
				for i := range int32(6) {
					f.append(l, spec{pid: 1, seq: i, txn: true, size: 700})
					f.append(l, spec{pid: 2, seq: i, txn: true, size: 700})
					f.append(l, spec{pid: 1, txn: true, control: true})
					f.append(l, spec{pid: 2, txn: true, control: true, commit: i%2 == 0})
				}
				f.append(l, spec{pid: 3, txn: true}) // stays open
				want, offsets := l.AbortedIn(nil, 0, 1<<40), l.Offsets()
				if len(want) != 9 || len(l.Segments()) < 3 {
					t.Fatalf("%d aborted in %d segments: the test proves nothing", len(want), len(l.Segments()))
				}
				if f.e.work.wait(); clean {
					f.close()
				} else {
					f.kill()
				}
				files, err := filepath.Glob(filepath.Join(f.cfg.Dir, "t-0", "*.txnindex"))
				if err != nil || len(files) == 0 {
					t.Fatalf("no files: %v", err)
				}
				for _, file := range files {
					f.edit(file, change)
				}
				l = f.reopen(cfg)
				if got := l.AbortedIn(nil, 0, 1<<40); !slices.Equal(got, want) {
					t.Errorf("aborted %+v, want %+v", got, want)
				}
				wantOffsets(t, l, offsets)
				f.append(l, spec{pid: 3, txn: true, control: true})
				f.close()
				if got := f.reopen(cfg).AbortedIn(nil, 0, 1<<40); len(got) != len(want)+1 || !slices.Equal(got[:len(want)], want) {
					t.Errorf("after one more start: %+v", got)
				}
			})
		}
	}
}
