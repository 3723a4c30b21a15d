package group

// Totals count what shards hold.
type Totals struct {
	States  [reconciling + 1]StateTotal // by state, in a fixed order
	Members int
	Offsets int // committed, one per group and partition
}

// StateTotal is how many groups are in a state.
type StateTotal struct {
	Name   string // as DescribeGroups says it
	Groups int
}

// NewTotals counts nothing yet.
func NewTotals() (t Totals) {
	for st := range t.States {
		t.States[st].Name = state(st).String()
	}
	return t
}

// AddTo adds what this shard holds.
func (s *Shard) AddTo(t *Totals) {
	for _, g := range s.groups {
		t.States[g.state()].Groups++
		t.Offsets += len(g.offsets)
		if g.classic != nil {
			t.Members += len(g.classic.members)
		}
		if g.consumer != nil {
			t.Members += len(g.consumer.members)
		}
	}
}

// MissingTopics are the topics that do not exist and of which offsets are held: they were deleted when the broker could not write that any
// more.
func (s *Shard) MissingTopics() (names []string) {
	seen := make(map[name]struct{})
	for _, g := range s.groups {
		for k := range g.offsets {
			if _, known := seen[k.topic]; known {
				continue
			}
			seen[k.topic] = struct{}{}
			if s.cfg.Partitions(k.topic.Value()) == 0 {
				names = append(names, k.topic.Value())
			}
		}
	}
	return names
}
