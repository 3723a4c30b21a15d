package parsley

import "slices"

// Claim says that everything up to N on Key precedes the holder of the claim.
type Claim[K Channel | SequenceKey] struct {
	Key K
	N   int64 // offset or send sequence, >= 0
}

// OffsetClaim is a claim on everything at or below an offset of a channel.
type OffsetClaim = Claim[Channel]

// SequenceClaim is a claim on everything that one sender sent to a channel with a send sequence at or below N.
type SequenceClaim = Claim[SequenceKey]

// Clock is a set of claims, at most one for each key. What is absent is not claimed. The zero value is the empty clock.
// Not safe for concurrent use. Copying the struct shares the entries: use CopyFrom.
type Clock struct {
	offsets   []OffsetClaim   // ascending by key, no two alike
	sequences []SequenceClaim // likewise
}

// Offsets are the offset claims in ascending order. They must not be changed and are valid until the clock changes.
func (c *Clock) Offsets() []OffsetClaim { return c.offsets }

// Sequences are the sequence claims in ascending order, on the same terms as Offsets.
func (c *Clock) Sequences() []SequenceClaim { return c.sequences }

// Width is the number of claims.
func (c *Clock) Width() int { return len(c.offsets) + len(c.sequences) }

// Empty says whether nothing is claimed.
func (c *Clock) Empty() bool { return c.Width() == 0 }

// Reset takes all claims away and keeps the memory.
func (c *Clock) Reset() { c.offsets, c.sequences = c.offsets[:0], c.sequences[:0] }

// CopyFrom makes c equal to d, in c's own memory.
func (c *Clock) CopyFrom(d *Clock) {
	c.offsets = append(c.offsets[:0], d.offsets...)
	c.sequences = append(c.sequences[:0], d.sequences...)
}

// Equal says whether both claim the same.
func (c *Clock) Equal(d *Clock) bool {
	return slices.Equal(c.offsets, d.offsets) && slices.Equal(c.sequences, d.sequences)
}

// Offset is the claim on a channel; false: none.
//
//go:noinline
func (c *Clock) Offset(ch Channel) (int64, bool) { return find(c.offsets, &ch) }

// Sequence is the claim on what a sender sent to a channel; false: none.
//
//go:noinline
func (c *Clock) Sequence(k SequenceKey) (int64, bool) {
	return find(c.sequences, &k)
}

// RaiseOffset claims at least n on ch and says whether that changed the clock. n < 0 claims nothing.
//
//go:noinline
func (c *Clock) RaiseOffset(ch Channel, n int64) (changed bool) {
	c.offsets, changed = raise(c.offsets, &ch, n)
	return changed
}

// RaiseSequence is RaiseOffset for sequences.
//
//go:noinline
func (c *Clock) RaiseSequence(k SequenceKey, n int64) (changed bool) {
	c.sequences, changed = raise(c.sequences, &k, n)
	return changed
}

// RemoveOffset takes the claim on ch away and says whether there was one.
//
//go:noinline
func (c *Clock) RemoveOffset(ch Channel) (changed bool) {
	c.offsets, changed = remove(c.offsets, &ch)
	return changed
}

// RemoveSequence is RemoveOffset for sequences.
//
//go:noinline
func (c *Clock) RemoveSequence(k SequenceKey) (changed bool) {
	c.sequences, changed = remove(c.sequences, &k)
	return changed
}

// FilterOffsets keeps the offset claims for which keep is true, asked in ascending order, and says whether one went.
// keep may change the sequence claims of the same clock, not the offset claims.
func (c *Clock) FilterOffsets(keep func(OffsetClaim) bool) (changed bool) {
	n := len(c.offsets)
	c.offsets = filter(c.offsets, keep)
	return len(c.offsets) != n
}

// FilterSequences is FilterOffsets for sequences: keep may change the offset claims.
func (c *Clock) FilterSequences(keep func(SequenceClaim) bool) (changed bool) {
	n := len(c.sequences)
	c.sequences = filter(c.sequences, keep)
	return len(c.sequences) != n
}

// Merge adds the claims of d, of two on the same key the larger one, and says whether that changed c.
func (c *Clock) Merge(d *Clock) (changed bool) {
	var o, s bool
	c.offsets, o = merge(c.offsets, d.offsets)
	c.sequences, s = merge(c.sequences, d.sequences)
	return o || s
}

// Dominates says whether c claims everything that d claims.
func (c *Clock) Dominates(d *Clock) bool {
	return dominates(c.offsets, d.offsets) && dominates(c.sequences, d.sequences)
}

// The walks below are written once for both kinds of claims. They compare through pointers and without a function value or
// a method of the type parameter: the one makes keys escape to the heap, the other copies them. Inlined into another package,
// the methods above would lose what the compiler knows here, and their keys escape too: so they are not. Most keys that meet are
// equal, so that is asked first.

func compareKeys[K Channel | SequenceKey](a, b *K) int {
	switch a := any(a).(type) {
	case *Channel:
		return compareChannels(a, any(b).(*Channel))
	case *SequenceKey:
		return compareSequenceKeys(a, any(b).(*SequenceKey))
	}
	panic("BUG: claim on neither a channel nor a sender of one")
}

// search is the first place at or after from whose key is not below k. It looks in growing steps, as what it looks for is
// near as a rule.
func search[K Channel | SequenceKey](s []Claim[K], from int, k *K) int {
	low, high := from, from
	for step := 0; high < len(s) && compareKeys(&s[high].Key, k) < 0; step = 2*step + 1 {
		low, high = high+1, high+1+step
	}
	high = min(high, len(s))
	for low < high {
		middle := int(uint(low+high) >> 1)
		if compareKeys(&s[middle].Key, k) < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// seek is search, with an answer whether that place has the key. As a rule the place is from.
func seek[K Channel | SequenceKey](s []Claim[K], from int, k *K) (int, bool) {
	if from < len(s) && s[from].Key == *k {
		return from, true
	}
	i := search(s, from, k)
	return i, i < len(s) && s[i].Key == *k
}

func find[K Channel | SequenceKey](s []Claim[K], k *K) (int64, bool) {
	i, ok := seek(s, 0, k)
	if !ok {
		return 0, false
	}
	return s[i].N, true
}

func raise[K Channel | SequenceKey](s []Claim[K], k *K, n int64) ([]Claim[K], bool) {
	if n < 0 {
		return s, false
	}
	i, ok := seek(s, 0, k)
	if !ok {
		return slices.Insert(s, i, Claim[K]{*k, n}), true
	}
	if s[i].N >= n {
		return s, false
	}
	s[i].N = n
	return s, true
}

func remove[K Channel | SequenceKey](s []Claim[K], k *K) ([]Claim[K], bool) {
	i, ok := seek(s, 0, k)
	if !ok {
		return s, false
	}
	return slices.Delete(s, i, i+1), true
}

func filter[K Channel | SequenceKey](s []Claim[K], keep func(Claim[K]) bool) []Claim[K] {
	kept := s[:0]
	for _, e := range s {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// merge is two passes: the first raises what both have, which is all there is to do as a rule, and counts what dst lacks;
// the second, from the back, makes room for it.
func merge[K Channel | SequenceKey](dst, src []Claim[K]) (merged []Claim[K], changed bool) {
	i, missing := 0, 0
	for j := range src {
		e, ok := &src[j], false
		if i, ok = seek(dst, i, &e.Key); !ok {
			missing++
			continue
		}
		if dst[i].N < e.N {
			dst[i].N, changed = e.N, true
		}
		i++
	}
	if missing == 0 {
		return dst, changed
	}
	i, w := len(dst)-1, len(dst)+missing-1
	dst = slices.Grow(dst, missing)[:w+1]
	for j := len(src) - 1; missing > 0; w-- {
		o := -1
		if i >= 0 {
			o = compareKeys(&dst[i].Key, &src[j].Key)
		}
		if o < 0 {
			dst[w] = src[j]
			j--
			missing--
			continue
		}
		dst[w] = dst[i]
		i--
		if o == 0 {
			j--
		}
	}
	return dst, true
}

func dominates[K Channel | SequenceKey](have, want []Claim[K]) bool {
	i := 0
	for j := range want {
		e, ok := &want[j], false
		if i, ok = seek(have, i, &e.Key); !ok || have[i].N < e.N {
			return false
		}
		i++
	}
	return true
}
