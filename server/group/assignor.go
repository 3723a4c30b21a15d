package group

import (
	"fmt"
	"slices"
	"strings"

	"kaas/codec/wire"
)

// Assignor computes what each member of a consumer group is to have in the end. The same question gets the same answer.
type Assignor struct {
	name   string
	assign func(q *question) []partitions
}

// Name is how members and ConsumerGroupDescribe call it.
func (a Assignor) Name() string { return a.name }

// assignors are all that there are, by the Java classes that group.consumer.assignors names.
var assignors = map[string]Assignor{
	"org.apache.kafka.coordinator.group.assignor.UniformAssignor": {"uniform", uniform},
	"org.apache.kafka.coordinator.group.assignor.RangeAssignor":   {"range", ranges},
}

// AssignorsOf finds the assignors that group.consumer.assignors lists.
func AssignorsOf(classes []string) ([]Assignor, error) {
	var list []Assignor
	for _, class := range classes {
		a, ok := assignors[class]
		if !ok {
			return nil, fmt.Errorf("%s: there is no such assignor; Java classes cannot be loaded", class)
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there must be an assignor")
	}
	return list, nil
}

// question is what an assignor is asked: members by id, topics by id.
type question struct {
	members []asking
	topics  map[wire.UUID]int32 // how many partitions each has
}

// asking is a member that asks for partitions.
type asking struct {
	id     string
	topics []wire.UUID // that it subscribes to and that exist, in order, each once
	has    partitions  // its target so far
}

// sticky are the partitions that the member had and may keep, in a fixed order.
func (q *question) sticky(m *asking) (list []topicIDPartition) {
	for _, topic := range m.topics {
		for _, p := range m.has[topic] {
			if p < q.topics[topic] {
				list = append(list, topicIDPartition{topic, p})
			}
		}
	}
	return list
}

// all are the partitions of topics, in a fixed order.
func (q *question) all(topics []wire.UUID) (list []topicIDPartition) {
	for _, topic := range topics {
		for p := range q.topics[topic] {
			list = append(list, topicIDPartition{topic, p})
		}
	}
	return list
}

// shares are what is given out so far.
type shares struct {
	parts []partitions // by member
	load  []int        // how many each has
	taken map[topicIDPartition]int
}

func (q *question) begin() *shares {
	a := &shares{parts: make([]partitions, len(q.members)), load: make([]int, len(q.members)), taken: make(map[topicIDPartition]int)}
	for i := range a.parts {
		a.parts[i] = make(partitions)
	}
	return a
}

// give gives a partition to a member; false if somebody has it.
func (a *shares) give(k topicIDPartition, member int) bool {
	if _, taken := a.taken[k]; taken {
		return false
	}
	a.taken[k] = member
	a.load[member]++
	return true
}

// end is the answer by member.
func (a *shares) end() []partitions {
	for k, member := range a.taken {
		a.parts[member].put(k)
	}
	for _, p := range a.parts {
		p.close()
	}
	return a.parts
}

// assignorNames lists assignors for an answer.
func assignorNames(list []Assignor) string {
	names := make([]string, len(list))
	for i, a := range list {
		names[i] = a.name
	}
	return strings.Join(names, ", ")
}

// uniform gives every member as many partitions as any other, or one more. A member keeps what it has as far as that allows. Where members
// subscribe to different topics it does so as far as single moves of partitions go.
func uniform(q *question) []partitions {
	for i := range q.members {
		if !slices.Equal(q.members[i].topics, q.members[0].topics) {
			return balanced(q)
		}
	}
	if len(q.members) == 0 {
		return nil
	}
	return even(q)
}

// even is uniform for members that all subscribe to the same topics.
func even(q *question) []partitions {
	a := q.begin()
	all := q.all(q.members[0].topics)
	least, extra := len(all)/len(q.members), len(all)%len(q.members)
	var short []int // members that have the least or fewer
	for i := range q.members {
		for _, k := range q.sticky(&q.members[i]) {
			if a.load[i] < least {
				a.give(k, i)
			} else if extra > 0 && a.load[i] == least && a.give(k, i) {
				extra--
			}
		}
		if a.load[i] <= least {
			short = append(short, i)
		}
	}
	var open []int // the same, that get some, each with room for that
	room := make([]int, len(q.members))
	for _, i := range short {
		room[i] = least - a.load[i]
		if extra > 0 {
			room[i]++
			extra--
		}
		if room[i] > 0 {
			open = append(open, i)
		}
	}
	at := 0
	for _, k := range all {
		if len(open) == 0 {
			break
		}
		at %= len(open)
		i := open[at]
		if !a.give(k, i) {
			continue
		}
		if room[i]--; room[i] == 0 {
			open = slices.Delete(open, at, at+1)
		} else {
			at++
		}
	}
	return a.end()
}

// ranges gives each member of a topic a range of its partitions, of all topics the same as far as their sizes allow, so that topics that
// are cut alike are joined by one member. A member keeps what it has as far as everybody gets as much as any other, or one more.
func ranges(q *question) []partitions {
	a := q.begin()
	readers := make(map[wire.UUID][]int)
	for i := range q.members {
		for _, topic := range q.members[i].topics {
			readers[topic] = append(readers[topic], i)
		}
	}
	for topic, members := range readers {
		q.rangesOf(a, topic, members)
	}
	return a.end()
}

// rangesOf gives out one topic.
func (q *question) rangesOf(a *shares, topic wire.UUID, members []int) {
	least, extra := int(q.topics[topic])/len(members), int(q.topics[topic])%len(members)
	missing := make([]int, len(members)) // to the least; below 0: a member has all that it may have
	for n, i := range members {
		kept := 0
		for _, p := range q.members[i].has[topic] {
			if p >= q.topics[topic] || kept > least || kept == least && extra == 0 {
				break
			}
			if a.give(topicIDPartition{topic, p}, i) {
				if kept++; kept > least {
					extra--
				}
			}
		}
		missing[n] = least - kept
	}
	next := int32(0)
	for n, i := range members {
		want := missing[n]
		if want >= 0 && extra > 0 {
			want++
			extra--
		}
		for want > 0 {
			if a.give(topicIDPartition{topic, next}, i) {
				want--
			}
			next++
		}
	}
}
