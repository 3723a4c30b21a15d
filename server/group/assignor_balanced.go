package group

import (
	"cmp"
	"slices"

	"kaas/codec/wire"
)

// balanced is uniform for members that subscribe to different topics. Members keep what they have; what is left goes to whoever has least,
// of topics with few readers first; then partitions move to members that have at least two fewer than their owner, until there is none.
// Every move brings the loads closer, so it ends.
func balanced(q *question) []partitions {
	b := &balance{shares: q.begin(), readers: make(map[wire.UUID][]int)}
	for i := range q.members {
		for _, topic := range q.members[i].topics {
			b.readers[topic] = append(b.readers[topic], i)
		}
		for _, k := range q.sticky(&q.members[i]) {
			b.give(k, i)
		}
	}
	var topics []wire.UUID
	for topic := range b.readers {
		topics = append(topics, topic)
	}
	slices.SortFunc(topics, func(x, y wire.UUID) int {
		return cmp.Or(cmp.Compare(len(b.readers[x]), len(b.readers[y])), compareID(x, y))
	})
	all := q.all(topics)
	for _, k := range all {
		if _, taken := b.taken[k]; !taken {
			b.give(k, b.least(k.topic))
		}
	}
	for gap := slices.Max(b.load); ; gap -= max(gap/8, 1) { // the widest first, so that nothing moves twice for nothing
		gap = max(gap, 2)
		for b.round(all, gap) {
		}
		if gap == 2 {
			return b.end()
		}
	}
}

// balance are shares that is being evened out.
type balance struct {
	*shares
	readers map[wire.UUID][]int // members that subscribe to a topic
}

// least is who has least of those that read a topic, the first of several.
func (b *balance) least(topic wire.UUID) int {
	return slices.MinFunc(b.readers[topic], func(x, y int) int { return cmp.Compare(b.load[x], b.load[y]) })
}

// round moves partitions to members that have at least gap fewer than their owner; false if there are none.
func (b *balance) round(all []topicIDPartition, gap int) (moved bool) {
	for _, k := range all {
		from, to := b.taken[k], b.least(k.topic)
		if b.load[to]+gap <= b.load[from] {
			b.taken[k] = to
			b.load[from]--
			b.load[to]++
			moved = true
		}
	}
	return moved
}
