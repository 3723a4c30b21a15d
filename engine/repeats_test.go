package engine

import (
	"errors"
	"testing"

	"kaas/engine/producer"
)

// A client may have five requests in flight when the broker is killed, and find it again only after another kill: repeats of all five get their
// own offsets. After a stop in order it had its answers, and Apache knows the last batch only (45 for those before).
func TestRepeatsAfterKills(t *testing.T) {
	const inFlight = 5
	for _, c := range []struct {
		name  string
		known int // of those in flight
		ends  func(f *fixture)
	}{
		{"killed", inFlight, (*fixture).kill},
		{"killed twice", inFlight, func(f *fixture) { f.kill(); f.reopen(small(1 << 20)); f.kill() }},
		{"stopped", 1, (*fixture).close},
		{"killed, then stopped with more in it", 1, func(f *fixture) {
			f.kill()
			f.append(f.reopen(small(1<<20)), spec{pid: 8})
			f.close()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			l := f.log(true, small(1<<20))
			if err := l.Load(); err != nil {
				t.Fatal(err)
			}
			for i := range int32(inFlight + 1) {
				f.append(l, spec{n: 3, pid: 7, seq: 3 * i})
			}
			c.ends(f)
			l = f.reopen(small(1 << 20))
			for i := range int32(inFlight + 1) {
				en := []Entry{batch(spec{n: 3, pid: 7, seq: 3 * i})}
				l.Append(en)
				if known := int(i) > inFlight-c.known; known && (en[0].Err != nil || !en[0].Duplicate || en[0].BaseOffset != int64(3*i)) {
					t.Errorf("batch %d: %v, repeat %v at offset %d, want %d", i, en[0].Err, en[0].Duplicate, en[0].BaseOffset, 3*i)
				} else if !known && !errors.Is(en[0].Err, producer.ErrOutOfOrderSequence) {
					t.Errorf("batch %d: %v, repeat %v, want an error", i, en[0].Err, en[0].Duplicate)
				}
			}
		})
	}
}
