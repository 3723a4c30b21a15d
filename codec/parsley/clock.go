package parsley

import "slices"

// Claim says that everything up to N on Key precedes the holder of the claim.
type Claim[K claimKey[K]] struct {
	Key K
	N   int64 // offset or send sequence, >= 0
}

// OffsetClaim is a claim on everything at or below an offset of a channel.
type OffsetClaim = Claim[Channel]

// SequenceClaim is a claim on everything that one sender sent to a channel with a send sequence at or below N.
type SequenceClaim = Claim[SequenceKey]

type claimKey[K any] interface {
	comparable
	Compare(K) int
}

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
func (c *Clock) Offset(ch Channel) (int64, bool) { return find(c.offsets, ch) }

// Sequence is the claim on what a sender sent to a channel; false: none.
func (c *Clock) Sequence(k SequenceKey) (int64, bool) { return find(c.sequences, k) }

// RaiseOffset claims at least n on ch and says whether that changed the clock. n < 0 claims nothing.
func (c *Clock) RaiseOffset(ch Channel, n int64) (changed bool) {
	c.offsets, changed = raise(c.offsets, ch, n)
	return changed
}

// RaiseSequence is RaiseOffset for sequences.
func (c *Clock) RaiseSequence(k SequenceKey, n int64) (changed bool) {
	c.sequences, changed = raise(c.sequences, k, n)
	return changed
}

// RemoveOffset takes the claim on ch away and says whether there was one.
func (c *Clock) RemoveOffset(ch Channel) (changed bool) {
	c.offsets, changed = remove(c.offsets, ch)
	return changed
}

// RemoveSequence is RemoveOffset for sequences.
func (c *Clock) RemoveSequence(k SequenceKey) (changed bool) {
	c.sequences, changed = remove(c.sequences, k)
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

func search[K claimKey[K]](s []Claim[K], k K) (int, bool) {
	return slices.BinarySearchFunc(s, k, func(e Claim[K], k K) int { return e.Key.Compare(k) })
}

func find[K claimKey[K]](s []Claim[K], k K) (int64, bool) {
	i, ok := search(s, k)
	if !ok {
		return 0, false
	}
	return s[i].N, true
}

func raise[K claimKey[K]](s []Claim[K], k K, n int64) ([]Claim[K], bool) {
	if n < 0 {
		return s, false
	}
	i, ok := search(s, k)
	if !ok {
		return slices.Insert(s, i, Claim[K]{k, n}), true
	}
	if s[i].N >= n {
		return s, false
	}
	s[i].N = n
	return s, true
}

func remove[K claimKey[K]](s []Claim[K], k K) ([]Claim[K], bool) {
	i, ok := search(s, k)
	if !ok {
		return s, false
	}
	return slices.Delete(s, i, i+1), true
}

func filter[K claimKey[K]](s []Claim[K], keep func(Claim[K]) bool) []Claim[K] {
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
func merge[K claimKey[K]](dst, src []Claim[K]) (merged []Claim[K], changed bool) {
	i, missing := 0, 0
	for j := range src {
		found := false
		for i < len(dst) && !found {
			o := 0
			if dst[i].Key != src[j].Key {
				o = dst[i].Key.Compare(src[j].Key)
			}
			if o > 0 {
				break
			}
			if found = o == 0; found && dst[i].N < src[j].N {
				dst[i].N, changed = src[j].N, true
			}
			i++
		}
		if !found {
			missing++
		}
	}
	if missing == 0 {
		return dst, changed
	}
	i, w := len(dst)-1, len(dst)+missing-1
	dst = slices.Grow(dst, missing)[:w+1]
	for j := len(src) - 1; missing > 0; w-- {
		o := -1
		if i >= 0 {
			o = dst[i].Key.Compare(src[j].Key)
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

func dominates[K claimKey[K]](have, want []Claim[K]) bool {
	i := 0
	for j := range want {
		for i < len(have) && have[i].Key != want[j].Key {
			if have[i].Key.Compare(want[j].Key) > 0 {
				return false
			}
			i++
		}
		if i == len(have) || have[i].N < want[j].N {
			return false
		}
		i++
	}
	return true
}
