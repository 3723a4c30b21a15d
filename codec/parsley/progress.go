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
	f := 0
	for i := from; i < n; i++ {
		c := &claims.offsets[i]
		if f = seek(p.Frontiers, f, c.Key); f == len(p.Frontiers) {
			break
		}
		if p.Frontiers[f].Key == c.Key && p.Frontiers[f].N < c.N && c.Key != own {
			return i
		}
	}
	f, m := 0, 0
	for i := max(from-n, 0); i < len(claims.sequences); i++ {
		c := &claims.sequences[i]
		if f = seek(p.Frontiers, f, c.Key.Channel); f == len(p.Frontiers) {
			break
		}
		if p.Frontiers[f].Key != c.Key.Channel || c.Key.Channel == own {
			continue
		}
		m = seek(p.Marks, m, c.Key)
		if m == len(p.Marks) || p.Marks[m].Key != c.Key || p.Marks[m].N < c.N {
			return n + i
		}
	}
	return -1
}

// seek is the first place at or after i with a key that is not below k.
func seek[K claimKey[K]](s []Claim[K], i int, k K) int {
	for i < len(s) && s[i].Key != k && s[i].Key.Compare(k) < 0 {
		i++
	}
	return i
}
