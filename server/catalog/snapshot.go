package catalog

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// Topic is one topic as of some snapshot. It must not be modified; Configs neither.
type Topic struct {
	Name        string
	ID          [16]byte
	Partitions  int32             // numbered from 0
	LeaderEpoch int32             // of all partitions; 0: made since the last start
	Internal    bool              // made by the broker for itself
	Configs     map[string]string // settings that differ from the broker's defaults; nil for none
	// Handle is the server's own. A hook may set it while it runs and nobody else; it is carried over to later versions of the
	// same topic.
	Handle any

	created   uint64 // starts when it was made
	epochBase int32  // its leader epochs go on from here: those of the broker it was imported from lie below
}

// Snapshot is the state at one moment. It never changes and may be kept and read by any goroutine.
type Snapshot struct {
	names      index[string]
	ids        index[[16]byte]
	folded     index[string] // by folded name
	topics     int
	partitions int
	brokers    map[string]map[string]string
	quotas     map[string]*Quota // by key

	// The sorted list is made when first asked for, from the last one made and the names changed since.
	list    atomic.Pointer[[]*Topic]
	base    []*Topic
	changed []string
	full    bool // no usable base
}

var seed = maphash.MakeSeed()

func hashName(s string) uint64 { return maphash.String(seed, s) }

// hashID needs no mixing: ids are random. Those of foreign origin can at worst make a chain of 12 nodes.
func hashID(id [16]byte) uint64 {
	return binary.LittleEndian.Uint64(id[:]) ^ binary.LittleEndian.Uint64(id[8:])
}

func emptySnapshot() *Snapshot {
	return &Snapshot{
		names:  index[string]{hash: hashName},
		ids:    index[[16]byte]{hash: hashID},
		folded: index[string]{hash: hashName},
	}
}

// Topic returns the topic of that name, or nil. It does not keep name.
func (s *Snapshot) Topic(name string) *Topic { return s.names.get(name) }

// TopicByID returns the topic with that id, or nil.
func (s *Snapshot) TopicByID(id [16]byte) *Topic { return s.ids.get(id) }

// Len is the number of topics.
func (s *Snapshot) Len() int { return s.topics }

// Partitions is the number of partitions of all topics.
func (s *Snapshot) Partitions() int { return s.partitions }

// BrokerConfigs returns the dynamic settings of a node (id in decimal) or, for "", the cluster-wide defaults. Not to be
// modified.
func (s *Snapshot) BrokerConfigs(node string) map[string]string { return s.brokers[node] }

// fold makes names that Apache Kafka takes for the same metric name equal.
func fold(name string) string { return strings.ReplaceAll(name, ".", "_") }

// Collides returns the topic whose name differs from name only in '.' and '_'. The topic of exactly that name is none.
func (s *Snapshot) Collides(name string) (other string, found bool) {
	if t := s.folded.get(fold(name)); t != nil && t.Name != name {
		return t.Name, true
	}
	return "", false
}

// maxChanged is how many changes are worth merging into the last sorted list; more make a new one.
const maxChanged = 1024

// Topics returns all topics sorted by name. The slice is shared: not to be modified. The first call after a change makes it,
// in time linear in the number of topics; later ones are free.
func (s *Snapshot) Topics() []*Topic {
	if l := s.list.Load(); l != nil {
		return *l
	}
	out := make([]*Topic, 0, s.topics)
	if s.full {
		out = s.names.root.collect(out)
		slices.SortFunc(out, func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) })
	} else {
		changed := slices.Clone(s.changed)
		slices.Sort(changed)
		rest := s.base
		for _, name := range slices.Compact(changed) {
			i, found := slices.BinarySearchFunc(rest, name, func(t *Topic, n string) int { return strings.Compare(t.Name, n) })
			out = append(out, rest[:i]...)
			if rest = rest[i:]; found {
				rest = rest[1:]
			}
			if t := s.Topic(name); t != nil {
				out = append(out, t)
			}
		}
		out = append(out, rest...)
	}
	s.list.Store(&out)
	return out
}

func (n *node[K]) collect(to []*Topic) []*Topic {
	if n == nil {
		return to
	}
	for i := range n.slots {
		if n.slots[i].kid != nil {
			to = n.slots[i].kid.collect(to)
		} else {
			to = append(to, n.slots[i].topic)
		}
	}
	return to
}

// next returns a copy to be changed with e and then published. Only one successor of a snapshot is ever published.
func (s *Snapshot) next() *Snapshot {
	n := &Snapshot{names: s.names, ids: s.ids, folded: s.folded, topics: s.topics, partitions: s.partitions, brokers: s.brokers, quotas: s.quotas}
	if l := s.list.Load(); l != nil {
		n.base = *l
	} else if s.full || len(s.changed) > maxChanged {
		n.full = true
	} else {
		n.base, n.changed = s.base, s.changed // appended to by one published successor at most
	}
	return n
}

func (s *Snapshot) touch(name string) {
	if !s.full {
		s.changed = append(s.changed, name)
	}
}

// set adds a topic or a new version of it.
func (s *Snapshot) set(e *edit, t *Topic) {
	if old := s.names.get(t.Name); old != nil {
		s.partitions -= int(old.Partitions)
	} else {
		s.topics++
	}
	s.partitions += int(t.Partitions)
	s.names = s.names.with(e, t.Name, t)
	s.ids = s.ids.with(e, t.ID, t)
	s.folded = s.folded.with(e, fold(t.Name), t)
	s.touch(t.Name)
}

func (s *Snapshot) remove(e *edit, t *Topic) {
	s.topics--
	s.partitions -= int(t.Partitions)
	s.names = s.names.without(e, t.Name)
	s.ids = s.ids.without(e, t.ID)
	s.folded = s.folded.without(e, fold(t.Name))
	s.touch(t.Name)
}
