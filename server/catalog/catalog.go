package catalog

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"kaas/engine/state"
)

// Errors of the mutations; any other error is the store's: nothing was published, and whether it survives a crash is open.
var (
	ErrTopicExists    = errors.New("catalog: topic exists")
	ErrUnknownTopic   = errors.New("catalog: unknown topic")
	ErrInvalidName    = errors.New("catalog: illegal topic name")
	ErrPartitionCount = errors.New("catalog: the number of partitions must be positive and may only grow")
	ErrProducerIDs    = errors.New("catalog: producer ids are used up")
	ErrNodeID         = errors.New("catalog: the data belongs to another node id")
	ErrClusterID      = errors.New("catalog: the data belongs to another cluster id")
)

// CollisionError refuses a name that differs from that of an existing topic only in '.' and '_'.
type CollisionError struct{ Name, Other string }

func (e *CollisionError) Error() string {
	return fmt.Sprintf("catalog: topic %q collides with existing topic %q", e.Name, e.Other)
}

// ProducerIDBlock is how many producer ids are reserved at a time.
const ProducerIDBlock = 1000

// epochsPerStart is by how much a start raises every leader epoch: two, as in Apache, where a broker that goes gives up its
// partitions (one) and takes them again (another).
const epochsPerStart = 2

// Store is what the catalog needs of an engine/state store.
type Store interface {
	Scan(prefix []byte, fn func(key, value []byte) error) error
	Apply(b *state.Batch, durable bool) error
}

// Hooks tell the server of changes: after they are durable, before the snapshot with them is published, one at a time, with
// the catalog locked: a hook must not call the catalog's mutations, and anything slow in it delays all of them. Any may be nil.
type Hooks struct {
	// TopicAdded is called for each topic that Open finds, and for each new one (LeaderEpoch 0). It may set t.Handle.
	TopicAdded func(t *Topic)
	// PartitionsAdded: partitions from…t.Partitions-1 are new. t.Handle is that of the version before, which readers still
	// use; it may be replaced.
	PartitionsAdded func(t *Topic, from int32)
	TopicRemoved    func(t *Topic)
	// ConfigChanged: t has the new settings. t.Handle as above.
	ConfigChanged func(t *Topic)
	// QuotasChanged gets all quotas, in order of their keys. Not called by Open.
	QuotasChanged func(all []*Quota)
	// BrokerConfigChanged: node "" is the cluster-wide default. Not called by Open.
	BrokerConfigChanged func(node string, configs map[string]string)
}

// Options of Open.
type Options struct {
	NodeID    int32
	ClusterID string // 22 characters as Kafka's; "": what the store says, or a new random one
	Hooks     Hooks
}

// Catalog is an open catalog. Reads go to Snapshot; mutations are serialised, may block for a sync, and must not be called
// on an event loop.
type Catalog struct {
	store   Store
	hooks   Hooks
	nodeID  int32
	cluster string
	starts  uint64
	current atomic.Pointer[Snapshot]

	mu       sync.Mutex // serialises mutations, over their sync too; guards producer
	producer uint64     // first producer id in no block
}

// Open reads the catalog, makes an identity on first use, counts this start and makes that durable: one sync.
func Open(store Store, o Options) (*Catalog, error) {
	c := &Catalog{store: store, hooks: o.Hooks, nodeID: o.NodeID}
	snap, e := emptySnapshot(), &edit{}
	nodeID, list := int32(-1), []*Topic(nil)
	err := store.Scan(nil, func(key, value []byte) (err error) {
		if len(key) == 0 {
			return nil
		}
		d := newDecoder(value)
		switch kind, rest := key[0], string(key[1:]); kind {
		case kindIdentity:
			nodeID, c.cluster, err = int32(d.number(math.MaxInt32)), d.string(), d.done()
		case kindStarts:
			c.starts, err = d.number(math.MaxUint64), d.done()
		case kindProducer:
			c.producer, err = d.number(math.MaxInt64), d.done()
		case kindBroker:
			if snap.brokers == nil {
				snap.brokers = map[string]map[string]string{}
			}
			snap.brokers[rest], err = d.pairs(), d.done()
		case kindQuota:
			var q *Quota
			if q, err = decodeQuota(rest, d); err == nil {
				if snap.quotas == nil {
					snap.quotas = map[string]*Quota{}
				}
				snap.quotas[rest] = q
			}
		case kindTopic:
			var t *Topic
			if t, err = decodeTopic(rest, value); err == nil {
				snap.set(e, t)
				list = append(list, t)
			}
		}
		if err != nil {
			err = fmt.Errorf("catalog: key %q: %w", key, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := c.begin(nodeID, o); err != nil {
		return nil, err
	}
	for _, t := range list {
		t.LeaderEpoch = int32(min(uint64(t.epochBase)+epochsPerStart*(c.starts-t.created), math.MaxInt32))
		c.topicAdded(t)
	}
	snap.changed = nil
	snap.list.Store(&list) // the store scans in the order of names
	c.current.Store(snap)
	return c, nil
}

// begin checks or makes the identity and counts the start.
func (c *Catalog) begin(nodeID int32, o Options) error {
	var b state.Batch
	if nodeID < 0 {
		if c.cluster = o.ClusterID; c.cluster == "" {
			c.cluster = NewClusterID()
		}
		b.Put([]byte{kindIdentity}, appendIdentity(o.NodeID, c.cluster))
	} else if nodeID != o.NodeID {
		return fmt.Errorf("%w: stored %d, configured %d", ErrNodeID, nodeID, o.NodeID)
	} else if o.ClusterID != "" && o.ClusterID != c.cluster {
		return fmt.Errorf("%w: stored %s, configured %s", ErrClusterID, c.cluster, o.ClusterID)
	}
	c.starts++
	b.Put([]byte{kindStarts}, appendNumber(c.starts))
	return c.store.Apply(&b, true)
}

// NewClusterID makes a random cluster id: a UUID in base64url, which does not begin with '-' (as Kafka's, so that it can be
// given on a command line).
func NewClusterID() string {
	for {
		id := newID()
		if s := base64.RawURLEncoding.EncodeToString(id[:]); s[0] != '-' {
			return s
		}
	}
}

func newID() [16]byte { return uuid.New() }

// NodeID is the broker's id.
func (c *Catalog) NodeID() int32 { return c.nodeID }

// ClusterID is the id of the cluster, 22 characters.
func (c *Catalog) ClusterID() string { return c.cluster }

// Starts is how often the catalog was opened, this time included.
func (c *Catalog) Starts() uint64 { return c.starts }

// Snapshot returns the state of now; never nil.
func (c *Catalog) Snapshot() *Snapshot { return c.current.Load() }

func (c *Catalog) topicAdded(t *Topic) {
	if c.hooks.TopicAdded != nil {
		c.hooks.TopicAdded(t)
	}
}

// NewTopic describes a topic to be made.
type NewTopic struct {
	Name       string
	ID         [16]byte // zero: a random one
	Partitions int32
	Internal   bool
	Configs    map[string]string // copied
}

// Result is the outcome for one topic of a call; Topic is nil if Err is not.
type Result struct {
	Topic *Topic
	Err   error
}

// change is one mutation under way.
type change struct {
	batch state.Batch
	snap  *Snapshot
	edit  *edit
	after []func() // hooks, to run once durable
}

func (c *Catalog) begun() *change { return &change{snap: c.current.Load().next(), edit: &edit{}} }

// commit makes the change durable, runs the hooks, and publishes. Called with mu.
func (c *Catalog) commit(ch *change) error {
	if ch.batch.Len() == 0 {
		return nil
	}
	if err := c.store.Apply(&ch.batch, true); err != nil {
		return err
	}
	for _, f := range ch.after {
		f()
	}
	c.current.Store(ch.snap)
	return nil
}

func (ch *change) put(t *Topic) {
	ch.batch.Put(topicKey(t.Name), t.append(nil))
	ch.snap.set(ch.edit, t)
}

// settle gives the store's error to all that would have succeeded.
func settle(results []Result, err error) []Result {
	if err != nil {
		for i := range results {
			if results[i].Err == nil {
				results[i] = Result{Err: err}
			}
		}
	}
	return results
}

// CreateTopics makes topics with one sync for all. Each succeeds or fails on its own: ErrInvalidName, ErrPartitionCount,
// ErrTopicExists, CollisionError, or the store's error for all. The results are in the order of list.
func (c *Catalog) CreateTopics(list []NewTopic) []Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.begun()
	out := make([]Result, len(list))
	for i := range list {
		n := &list[i]
		if out[i].Err = ch.check(n); out[i].Err != nil {
			continue
		}
		t := &Topic{Name: string([]byte(n.Name)), ID: n.ID, Partitions: n.Partitions, Internal: n.Internal,
			Configs: cloneConfigs(n.Configs), created: c.starts}
		for t.ID == ([16]byte{}) || ch.snap.TopicByID(t.ID) != nil {
			t.ID = newID()
		}
		ch.put(t)
		ch.after = append(ch.after, func() { c.topicAdded(t) })
		out[i].Topic = t
	}
	return settle(out, c.commit(ch))
}

func (ch *change) check(n *NewTopic) error {
	switch other, collides := ch.snap.Collides(n.Name); {
	case !LegalName(n.Name):
		return ErrInvalidName
	case n.Partitions <= 0:
		return ErrPartitionCount
	case ch.snap.Topic(n.Name) != nil:
		return ErrTopicExists
	case collides:
		return &CollisionError{Name: n.Name, Other: other}
	}
	return nil
}

// cloneConfigs copies a map deeply: names and values may alias a buffer. Empty becomes nil.
func cloneConfigs(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[string([]byte(k))] = string([]byte(v))
	}
	return out
}

// DeleteTopics removes topics, known by their ids, with one sync. Errors, in the order of list: nil, ErrUnknownTopic (gone
// since the snapshot it came from, or a recreated one has taken its name), or the store's error.
func (c *Catalog) DeleteTopics(list []*Topic) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.begun()
	out := make([]error, len(list))
	for i, l := range list {
		t := ch.snap.TopicByID(l.ID)
		if t == nil {
			out[i] = ErrUnknownTopic
			continue
		}
		ch.batch.Delete(topicKey(t.Name))
		ch.snap.remove(ch.edit, t)
		if c.hooks.TopicRemoved != nil {
			ch.after = append(ch.after, func() { c.hooks.TopicRemoved(t) })
		}
	}
	if err := c.commit(ch); err != nil {
		for i := range out {
			if out[i] == nil {
				out[i] = err
			}
		}
	}
	return out
}

// NewPartitions asks for a topic to have Total partitions.
type NewPartitions struct {
	Name  string
	Total int32
}

// AddPartitions grows topics with one sync. Errors: ErrUnknownTopic, ErrPartitionCount (not more than now), or the store's.
func (c *Catalog) AddPartitions(list []NewPartitions) []Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.begun()
	out := make([]Result, len(list))
	for i, n := range list {
		old := ch.snap.Topic(n.Name)
		if old == nil {
			out[i].Err = ErrUnknownTopic
			continue
		}
		if n.Total <= old.Partitions {
			out[i].Err = ErrPartitionCount
			continue
		}
		t := old.copy()
		t.Partitions = n.Total
		ch.put(t)
		ch.after = append(ch.after, func() {
			t.Handle = old.Handle // set by now, even if old is of this same call
			if c.hooks.PartitionsAdded != nil {
				c.hooks.PartitionsAdded(t, old.Partitions)
			}
		})
		out[i].Topic = t
	}
	return settle(out, c.commit(ch))
}

func (t *Topic) copy() *Topic {
	n := *t
	return &n
}

// SetTopicConfigs replaces the settings of a topic. Errors: ErrUnknownTopic, or the store's.
func (c *Catalog) SetTopicConfigs(name string, configs map[string]string) error {
	return c.AlterTopicConfigs(name, func(map[string]string) (map[string]string, error) { return configs, nil })
}

// AlterTopicConfigs replaces the settings of a topic by what alter makes of them, with no other change in between. alter gets
// a copy, which it may change and return; its error ends the call and is returned.
func (c *Catalog) AlterTopicConfigs(name string, alter func(map[string]string) (map[string]string, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.begun()
	old := ch.snap.Topic(name)
	if old == nil {
		return ErrUnknownTopic
	}
	configs, err := altered(old.Configs, alter)
	if err != nil || maps.Equal(configs, old.Configs) {
		return err
	}
	t := old.copy()
	t.Configs = configs
	ch.put(t)
	if c.hooks.ConfigChanged != nil {
		ch.after = append(ch.after, func() { c.hooks.ConfigChanged(t) })
	}
	return c.commit(ch)
}

func altered(old map[string]string, alter func(map[string]string) (map[string]string, error)) (map[string]string, error) {
	in := make(map[string]string, len(old))
	maps.Copy(in, old)
	configs, err := alter(in)
	return cloneConfigs(configs), err
}

// SetBrokerConfigs replaces the dynamic settings of a node (id in decimal) or, for "", the cluster-wide defaults.
func (c *Catalog) SetBrokerConfigs(node string, configs map[string]string) error {
	return c.AlterBrokerConfigs(node, func(map[string]string) (map[string]string, error) { return configs, nil })
}

// AlterBrokerConfigs is AlterTopicConfigs for broker settings.
func (c *Catalog) AlterBrokerConfigs(node string, alter func(map[string]string) (map[string]string, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.begun()
	old := ch.snap.brokers[node]
	configs, err := altered(old, alter)
	if err != nil || maps.Equal(configs, old) {
		return err
	}
	brokers := make(map[string]map[string]string, len(ch.snap.brokers)+1)
	maps.Copy(brokers, ch.snap.brokers)
	node = string([]byte(node))
	if configs == nil {
		delete(brokers, node)
		ch.batch.Delete(brokerKey(node))
	} else {
		brokers[node] = configs
		ch.batch.Put(brokerKey(node), appendMap([]byte{recordVersion}, configs))
	}
	ch.snap.brokers = brokers
	if c.hooks.BrokerConfigChanged != nil {
		ch.after = append(ch.after, func() { c.hooks.BrokerConfigChanged(node, configs) })
	}
	return c.commit(ch)
}

// NextProducerIDs reserves the next block: ids first…first+ProducerIDBlock-1 are the caller's and nobody's after a restart.
func (c *Catalog) NextProducerIDs() (first int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.producer + ProducerIDBlock
	if next > math.MaxInt64 {
		return 0, ErrProducerIDs
	}
	var b state.Batch
	b.Put([]byte{kindProducer}, appendNumber(next))
	if err := c.store.Apply(&b, true); err != nil {
		return 0, err
	}
	first, c.producer = int64(c.producer), next
	return first, nil
}
