package parsley

// Progress is what a node has delivered, as its gate looks at it. Both lists are ascending without duplicates.
type Progress struct {
	// Frontiers has every consumed channel, and the offset up to which everything is delivered; −1: nothing.
	Frontiers []OffsetClaim
	// Marks has the highest delivered sequence of each sender on consumed channels.
	Marks []SequenceClaim
}

// Unmet is the index of the first claim at or after from that the record on channel own still has to wait for, −1 if there
// is none: a claim on another consumed channel that goes beyond what is delivered. Claims are counted through
// Clock.Offsets and on through Clock.Sequences. As progress never shrinks, a caller may go on where it stopped.
func (p *Progress) Unmet(claims *Clock, own Channel, from int) int {
	n := len(claims.offsets)
	if i := p.unmetOffset(claims.offsets, own, from); i >= 0 {
		return i
	}
	if i := p.unmetSequence(claims.sequences, own, max(from-n, 0)); i >= 0 {
		return n + i
	}
	return -1
}

// unmetOffset steps through both lists, and does not leap: a node consumes few channels, and a step is one comparison of
// eight bytes.
func (p *Progress) unmetOffset(claims []OffsetClaim, own Channel, i int) int {
	for f := 0; i < len(claims) && f < len(p.Frontiers); {
		have, want := &p.Frontiers[f], &claims[i]
		x, y := half(have.Key.Topic[:8]), half(want.Key.Topic[:8])
		o := 0
		if x == y {
			o = compareChannels(&have.Key, &want.Key)
		}
		switch {
		case x < y || o < 0:
			f++
		case x > y || o > 0:
			i++
		case have.N < want.N && want.Key != own:
			return i
		default:
			i++
			f++
		}
	}
	return -1
}

// There are marks for consumed channels only, so a claim that a mark covers is met whatever its channel.
func (p *Progress) unmetSequence(claims []SequenceClaim, own Channel, i int) int {
	m, f, ok := 0, 0, false
	for ; i < len(claims); i++ {
		want := &claims[i]
		m, ok = seek(p.Marks, m, &want.Key)
		met := want.Key.Channel == own
		if ok {
			met = met || p.Marks[m].N >= want.N
			m++
		}
		if met {
			continue
		}
		if f, ok = seek(p.Frontiers, f, &want.Key.Channel); ok {
			return i
		}
	}
	return -1
}
