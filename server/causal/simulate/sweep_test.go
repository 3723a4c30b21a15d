package simulate

import (
	"slices"

	"github.com/google/uuid"

	"kaas/codec/parsley"
	"kaas/server/causal"
)

// sweep is what a host does now and then.
func (h *host) sweep() {
	h.changed = true
	if err := h.checkLogs(); err != nil {
		h.failed(err)
		return
	}
	if h.w.custody && h.w.broken != parityMode && h.w.chance(50) {
		if err := h.upgrade(); err != nil {
			h.failed(err)
			return
		}
	}
	if err := h.truncate(); err != nil {
		h.failed(err)
	}
}

func (h *host) upgrade() error {
	var ends []causal.End
	for _, id := range h.node.SequenceChannels() {
		if p := h.w.logs[id]; !p.destroyed {
			end := p.end()
			if h.w.broken == custodyTooLow {
				end = min(p.start+1, end)
			}
			ends = append(ends, causal.End{Channel: id, Offset: end})
		}
	}
	_, before := h.node.Width()
	err := h.node.UpgradeCustody(ends, h.w.destroyed(h.node.SequenceChannels()))
	if _, after := h.node.Width(); after < before {
		h.w.reached("custody upgraded")
	}
	return err
}

func (h *host) truncate() error {
	var starts []causal.Position
	for _, id := range h.node.StampChannels() {
		p := h.w.logs[id]
		start := p.start
		if _, consumed := h.node.Channel(id); !consumed && h.w.broken == truncatedTooEarly {
			start = p.end()
		}
		if !p.destroyed {
			starts = append(starts, causal.Position{Channel: id, Offset: start})
		}
	}
	before := len(h.node.StampChannels())
	err := h.node.TruncateToLogStarts(starts, h.w.destroyed(h.node.StampChannels()))
	if len(h.node.StampChannels()) < before {
		h.w.reached("truncated")
	}
	return err
}

// destroyed are the topics of channels that are gone for good.
func (w *world) destroyed(channels []parsley.Channel) (ids []uuid.UUID) {
	for _, id := range channels {
		if w.logs[id].destroyed && !slices.Contains(ids, id.Topic) {
			ids = append(ids, id.Topic)
		}
	}
	return ids
}

// look scans a log for what a sequence claim names.
func (w *world) look(u causal.Unmet) causal.LookBack {
	p := w.logs[u.Channel]
	l := causal.LookBack{Claim: parsley.SequenceClaim{Key: parsley.SequenceKey{Channel: u.Channel, Sender: u.Sender}, N: u.Claimed},
		Watermark: p.end(), LastStable: p.stableEnd()}
	for _, s := range p.slots[p.start:] {
		if r := s.record; s.kind == business && r.sender == u.Sender && r.sequence >= u.Claimed {
			l.Found, l.Sequence, l.Offset = true, r.sequence, r.offset
			break
		}
	}
	l.LogStart, l.Compacted = p.start, p.compacted && w.broken != compactionUnnoticed
	return l
}

// lookable is a claim that a scan would settle, or any of those that a scan may be tried for.
func (h *host) lookable(any bool) (causal.LookBack, bool) {
	for _, b := range h.node.Explain() {
		for _, u := range b.Unmet {
			if !u.Sequenced || h.w.logs[u.Channel].destroyed {
				continue
			}
			l := h.w.look(u)
			if any || l.Found && l.Offset <= u.Frontier || !l.Compacted && !(l.Found && l.Sequence == u.Claimed) && l.LastStable >= l.Watermark && l.LogStart > 0 {
				return l, true
			}
		}
	}
	return causal.LookBack{}, false
}

// lookBack tells the node what a scan found.
func (h *host) lookBack(any bool) {
	l, ok := h.lookable(any)
	if !ok {
		return
	}
	h.changed = true
	h.w.reached("looked back")
	var err error
	h.out, err = h.node.LookedBack(l, h.out[:0])
	h.handle(err)
}

// checkStamp: a stamp claims only what is there.
func (w *world) checkStamp(h *host, dest *partition, s *parsley.Stamp) {
	for _, c := range s.Clock.Offsets() {
		if p := w.logs[c.Key]; p == nil || c.N >= p.end() {
			fail(falseClaim, "%s claims %v@%d, which ends at %d", h.name, c.Key, c.N, p.end())
		}
	}
	for _, c := range s.Clock.Sequences() {
		if last, ok := w.issued[c.Key]; !ok || c.N > last {
			fail(falseClaim, "%s claims number %d of %v, whose last is %d", h.name, c.N, c.Key, last)
		}
	}
	key := parsley.SequenceKey{Channel: dest.id, Sender: s.Sender}
	if last, ok := w.issued[key]; ok && s.Sequence < last {
		w.reached("number used again") // by a transaction that was aborted
	}
	w.issued[key] = max(w.issued[key], s.Sequence)
}
