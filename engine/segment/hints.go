package segment

import "sync/atomic"

// hints remember where the batch after one that was looked up begins: a consumer asks for it next, and finds it by one read of its
// header, without the index and without reading its predecessor. A hint is checked against the batch, so races and stale ones do no harm.
// There is none in memory until the first: most of very many segments are never read, or hold one batch.
type hints struct {
	slots atomic.Pointer[[8]hint]
}

type hint struct{ offset, pos atomic.Int64 }

func slot(offset int64) int { return int(uint64(offset) * 0x9E3779B97F4A7C15 >> 61) }

func (h *hints) put(offset, pos int64) {
	slots := h.slots.Load()
	if slots == nil {
		slots = new([8]hint)
		if !h.slots.CompareAndSwap(nil, slots) {
			return
		}
	}
	e := &slots[slot(offset)]
	e.offset.Store(offset)
	e.pos.Store(pos)
}

// find returns where the batch with that base offset begins, if it is remembered; 0 never is, for the first batch needs no hint.
func (h *hints) find(offset int64) (pos int64, ok bool) {
	slots := h.slots.Load()
	if slots == nil {
		return 0, false
	}
	e := &slots[slot(offset)]
	if e.offset.Load() != offset {
		return 0, false
	}
	pos = e.pos.Load()
	return pos, pos > 0
}

// reset forgets all, when the end of the segment is taken back.
func (h *hints) reset() { h.slots.Store(nil) }
