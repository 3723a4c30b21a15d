package compact

import (
	"fmt"
	"testing"
)

// TestMap: the greatest offset of each key, up to the load factor; never full of slots, so that every search ends.
func TestMap(t *testing.T) {
	for _, c := range []struct {
		bytes   int64
		load    float64
		records int64
		room    int
	}{
		{24 * 100, 0.9, 1 << 40, 90}, {24 * 100, 1, 1 << 40, 99}, {24 * 100, 7, 1 << 40, 99}, {1, 0.9, 10, 1}, {0, 0.001, 10, 1}, {1 << 30, 0.9, 10, 11},
	} {
		m := NewMap(c.bytes, c.load, c.records)
		n := 0
		for ; m.put(fmt.Append(nil, n), int64(n)); n++ {
		}
		if n != c.room || m.Len() != n || m.latest != int64(n-1) {
			t.Errorf("%+v: room for %d keys, latest %d", c, n, m.latest)
		}
		for i := range n {
			if got := m.get(fmt.Append(nil, i)); got != int64(i) {
				t.Errorf("%+v: key %d at %d", c, i, got)
			}
		}
		if got := m.get([]byte("none")); got != -1 {
			t.Errorf("%+v: unknown key at %d", c, got)
		}
	}
	m := NewMap(1<<20, 0.5, 100)
	for i := range 100 {
		m.put(fmt.Append(nil, i%7), int64(i))
	}
	if m.Len() != 7 || m.get([]byte("1")) != 99 || m.get([]byte("2")) != 93 {
		t.Errorf("%d keys, %d, %d", m.Len(), m.get([]byte("1")), m.get([]byte("2")))
	}
	if m.reached(500); m.latest != 500 || len(m.entries) != 202*entrySize {
		t.Errorf("latest %d, %d bytes", m.latest, len(m.entries))
	}
}
