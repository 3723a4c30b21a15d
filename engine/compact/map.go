package compact

import (
	"encoding/binary"
	"hash/maphash"
)

// entrySize is what a key costs, as in Kafka: 16 bytes of hash, 8 of offset.
const entrySize = 24

// Map holds the greatest offset seen of each key, by a hash of 128 bits, in memory that does not grow. Two keys with the same hash
// would lose a record; the hash is seeded anew for each Map, so that this is as unlikely for chosen keys as for any.
type Map struct {
	seeds   [2]maphash.Seed
	entries []byte // offset+1 first, so that zero is a free slot
	slots   uint64
	used    int
	max     int // entries that the load factor allows
	latest  int64
}

// NewMap makes a map of at most bytes bytes that is full at load (0 to 1). records bounds what will be put into it: a small range
// of offsets gets a small map.
func NewMap(bytes int64, load float64, records int64) *Map {
	slots := bytes / entrySize
	if need := float64(records)/load + 2; need < float64(slots) {
		slots = int64(need)
	}
	slots = max(slots, 2) // one stays free: it ends a search
	m := &Map{entries: make([]byte, slots*entrySize), slots: uint64(slots), latest: -1}
	m.max = max(int(min(float64(slots)*load, float64(slots-1))), 1)
	m.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	return m
}

// find returns the slot of a key, or the free one where it belongs.
func (m *Map) find(key []byte) (slot []byte, h1, h2 uint64) {
	h1, h2 = maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)
	for i := h1 % m.slots; ; i++ {
		if i == m.slots {
			i = 0
		}
		slot = m.entries[i*entrySize:][:entrySize]
		if binary.LittleEndian.Uint64(slot) == 0 ||
			binary.LittleEndian.Uint64(slot[8:]) == h1 && binary.LittleEndian.Uint64(slot[16:]) == h2 {
			return slot, h1, h2
		}
	}
}

// put enters a key at an offset above those put before. It is false, and changes nothing, when the map is full.
func (m *Map) put(key []byte, offset int64) bool {
	if m.used == m.max {
		return false
	}
	slot, h1, h2 := m.find(key)
	if binary.LittleEndian.Uint64(slot) == 0 {
		binary.LittleEndian.PutUint64(slot[8:], h1)
		binary.LittleEndian.PutUint64(slot[16:], h2)
		m.used++
	}
	binary.LittleEndian.PutUint64(slot, uint64(offset)+1)
	m.latest = max(m.latest, offset)
	return true
}

// get is the greatest offset put for a key, -1 if there is none.
func (m *Map) get(key []byte) int64 {
	slot, _, _ := m.find(key)
	return int64(binary.LittleEndian.Uint64(slot)) - 1
}

// reached says that everything up to offset has been looked at.
func (m *Map) reached(offset int64) { m.latest = max(m.latest, offset) }

// Len is the number of keys.
func (m *Map) Len() int { return m.used }
