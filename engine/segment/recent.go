package segment

import "sync"

// recentMax is how many of the last batches are found without the index: consumers that keep up ask for these.
const (
	recentMin = 1
	recentMax = 32
)

// recent is a ring of the last batches written.
type recent struct {
	mu   sync.Mutex // guards all
	ring []Position // nil until the first batch: sealed segments need none
	n    int        // batches ever added
}

func (r *recent) add(base, last, pos int64, size int) {
	r.mu.Lock()
	if r.n == len(r.ring) && r.n < recentMax {
		// It grows with the batches: most of very many segments get only a few.
		r.ring = append(make([]Position, 0, max(recentMin, 2*r.n)), r.ring...)
		r.ring = r.ring[:cap(r.ring)]
	}
	r.ring[r.n%len(r.ring)] = Position{Pos: pos, Size: size, Base: base, Last: last}
	r.n++
	r.mu.Unlock()
}

// find returns the first batch whose last offset is not below offset, if it is certain that the ring holds that one.
func (r *recent) find(offset int64) (Position, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(r.n, len(r.ring))
	for i := 1; i <= n; i++ {
		p := &r.ring[(r.n-i)%len(r.ring)]
		if offset > p.Last {
			return Position{}, false
		}
		if offset >= p.Base || i < n && offset > r.ring[(r.n-i-1)%len(r.ring)].Last {
			return *p, true
		}
	}
	return Position{}, false
}

func (r *recent) reset() {
	r.mu.Lock()
	r.ring, r.n = nil, 0
	r.mu.Unlock()
}
