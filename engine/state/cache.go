package state

import (
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
)

// valueCache holds values by their place. A place is written once and never again, so nothing is ever invalidated. It is
// made at the first Get: the catalog only scans, and must not pay for counters and goroutines.
type valueCache struct {
	c atomic.Pointer[ristretto.Cache[uint64, []byte]]
}

// typicalValue is the size in bytes, with overhead, from which the number of frequency counters is derived.
const typicalValue = 256

// hash mixes the place into 64 bits, one to one: different places never share a cache entry.
func (p place) hash() uint64 {
	x := uint64(p.file)<<32 | uint64(p.off)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (v *valueCache) get(p place) ([]byte, bool) {
	c := v.c.Load()
	if c == nil {
		return nil, false
	}
	return c.Get(p.hash())
}

func (v *valueCache) put(p place, value []byte, limit int64) {
	if limit < 0 {
		return
	}
	c := v.c.Load()
	if c == nil {
		made, err := ristretto.NewCache(&ristretto.Config[uint64, []byte]{
			NumCounters: max(10*limit/typicalValue, 100),
			MaxCost:     limit,
			BufferItems: 64,
			KeyToHash:   func(h uint64) (uint64, uint64) { return h, 0 },
		})
		if err != nil {
			panic("BUG: cache configuration refused: " + err.Error())
		}
		if c = made; !v.c.CompareAndSwap(nil, made) {
			made.Close()
			c = v.c.Load()
		}
	}
	if c != nil {
		c.Set(p.hash(), value, int64(len(value)))
	}
}

// close drops the cache. A Get that runs meanwhile may still use it, or make one more that the collector cannot stop: the
// store is closed by its owner, after its users.
func (v *valueCache) close() {
	if c := v.c.Swap(nil); c != nil {
		c.Close()
	}
}
