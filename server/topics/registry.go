package topics

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"kaas/codec/api"
	"kaas/engine"
	"kaas/server/catalog"
	"kaas/server/config"
)

// Registry is the set of topics of a broker.
type Registry struct {
	engine  *engine.Engine
	catalog *catalog.Catalog
	static  *config.Broker // as started, without dynamic settings
	nodeID  int32
	log     *slog.Logger
	change  sync.Mutex // one change of topics or settings at a time; look-ups do not take it
	config  atomic.Pointer[config.Broker]
	applied func(*config.Broker)   // told of settings that were altered; guarded by change
	quotas  func([]*catalog.Quota) // told of quotas that were altered; set before the first can be
	removed func(name string)      // told of topics that were deleted; guarded by change
}

// New makes the registry, opening the catalog over its store. Topics that exist are opened without I/O.
func New(cfg *config.Broker, store catalog.Store, e *engine.Engine, log *slog.Logger) (*Registry, error) {
	r := &Registry{engine: e, static: cfg, nodeID: cfg.NodeID, log: log}
	r.config.Store(cfg)
	cat, err := catalog.Open(store, catalog.Options{NodeID: cfg.NodeID, Hooks: catalog.Hooks{
		TopicAdded:          r.topicAdded,
		PartitionsAdded:     r.partitionsAdded,
		TopicRemoved:        r.topicRemoved,
		ConfigChanged:       r.configChanged,
		BrokerConfigChanged: func(string, map[string]string) {},
		QuotasChanged:       func(all []*catalog.Quota) { r.quotas(all) },
	}})
	if err != nil {
		return nil, err
	}
	r.catalog = cat
	r.applyBroker()
	return r, nil
}

// OnBrokerConfig has f told the settings in force whenever dynamic ones are altered, and once now.
func (r *Registry) OnBrokerConfig(f func(*config.Broker)) {
	r.change.Lock()
	defer r.change.Unlock()
	r.applied = f
	f(r.Config())
}

// OnQuotas has f told all client quotas whenever some are altered, before that is answered, and once now. It must be called before requests
// are served.
func (r *Registry) OnQuotas(f func(all []*catalog.Quota)) {
	r.quotas = f
	f(r.catalog.Snapshot().Quotas())
}

// OnTopicRemoved has f told of each topic that is deleted, before the deletion is answered. f must neither block nor change topics.
func (r *Registry) OnTopicRemoved(f func(name string)) {
	r.change.Lock()
	defer r.change.Unlock()
	r.removed = f
}

// Catalog is the catalog that the registry stands on.
func (r *Registry) Catalog() *catalog.Catalog { return r.catalog }

// Config returns the broker's settings in force.
func (r *Registry) Config() *config.Broker { return r.config.Load() }

// AutoCreate tells whether clients may make topics by naming them.
func (r *Registry) AutoCreate() bool { return r.Config().AutoCreateTopics }

// ByName finds a topic; nil if there is none. It does not keep name.
func (r *Registry) ByName(name string) *Topic { return handle(r.catalog.Snapshot().Topic(name)) }

// ByID finds a topic by its id; nil if there is none.
func (r *Registry) ByID(id [16]byte) *Topic { return handle(r.catalog.Snapshot().TopicByID(id)) }

// Len is the number of topics.
func (r *Registry) Len() int { return r.catalog.Snapshot().Len() }

// All lists the topics by name.
func (r *Registry) All() []*Topic {
	list := r.catalog.Snapshot().Topics()
	out := make([]*Topic, len(list))
	for i, t := range list {
		out[i] = handle(t)
	}
	return out
}

// Logs lists the logs of all partitions.
func (r *Registry) Logs() []*engine.Log {
	var out []*engine.Log
	for _, t := range r.catalog.Snapshot().Topics() {
		for _, p := range handle(t).Partitions() {
			out = append(out, p.Log)
		}
	}
	return out
}

// KnowsDir tells whether a directory of that name is a partition's.
func (r *Registry) KnowsDir(name string) bool {
	at := strings.LastIndexByte(name, '-')
	if at < 0 {
		return false
	}
	index, err := strconv.ParseInt(name[at+1:], 10, 32)
	t := r.ByName(name[:at])
	return err == nil && t != nil && t.Partition(int32(index)) != nil
}

// handle is the topic that belongs to one of the catalog.
func handle(t *catalog.Topic) *Topic {
	if t == nil {
		return nil
	}
	return t.Handle.(*Topic)
}

// topicAdded makes the topic of one in the catalog, before anyone can find it.
func (r *Registry) topicAdded(c *catalog.Topic) {
	t := &Topic{Name: c.Name, ID: c.ID, Internal: c.Internal}
	t.settings.Store(newSettings(r.Config(), c.Configs))
	parts := r.openPartitions(t, c, nil, c.LeaderEpoch == 0)
	t.partitions.Store(&parts)
	c.Handle = t
}

// openPartitions opens the logs of the partitions from len(have) on; isNew says that they have never been written.
func (r *Registry) openPartitions(t *Topic, c *catalog.Topic, have []*Partition, isNew bool) []*Partition {
	lc := logConfig(&t.Settings().Config)
	parts := append(make([]*Partition, 0, c.Partitions), have...)
	for i := int32(len(have)); i < c.Partitions; i++ {
		log := r.engine.OpenLog(engine.LogSpec{Topic: t.Name, Partition: i, TopicID: t.ID, LeaderEpoch: c.LeaderEpoch, Config: lc, New: isNew})
		parts = append(parts, &Partition{Topic: t, Index: i, LeaderEpoch: c.LeaderEpoch, Log: log})
	}
	return parts
}

// partitionsAdded grows a topic. Requests under way keep the shorter list.
func (r *Registry) partitionsAdded(c *catalog.Topic, _ int32) {
	t := handle(c)
	parts := r.openPartitions(t, c, t.Partitions(), true)
	t.partitions.Store(&parts)
}

// topicRemoved takes a topic away: its logs refuse reads and writes from now on, its files are renamed and go in the background.
func (r *Registry) topicRemoved(c *catalog.Topic) {
	t := handle(c)
	t.gone.Store(true)
	for _, p := range t.Partitions() {
		r.engine.Remove(p.Log)
	}
}

// configChanged puts a topic's altered settings in force.
func (r *Registry) configChanged(c *catalog.Topic) {
	r.apply(handle(c), c.Configs)
}

// apply works out a topic's settings and hands them to its logs.
func (r *Registry) apply(t *Topic, overrides map[string]string) {
	set := newSettings(r.Config(), overrides)
	t.settings.Store(set)
	lc := logConfig(&set.Config)
	for _, p := range t.Partitions() {
		p.Log.SetConfig(lc)
	}
}

// logConfig is what the engine wants to know of a topic's settings.
func logConfig(t *config.Topic) *engine.LogConfig {
	return &engine.LogConfig{
		SegmentBytes: int64(t.SegmentBytes), SegmentMs: t.SegmentMs, SegmentJitterMs: t.SegmentJitterMs, SegmentIndexBytes: int(t.SegmentIndexBytes),
		IndexIntervalBytes: int(t.IndexIntervalBytes), RetentionMs: t.RetentionMs, RetentionBytes: t.RetentionBytes,
		Delete: t.Delete, Compact: t.Compact, FileDeleteDelayMs: t.FileDeleteDelayMs,
		DeleteRetentionMs: t.DeleteRetentionMs, MinCompactionLagMs: t.MinCompactionLagMs, MaxCompactionLagMs: t.MaxCompactionLagMs,
		MinCleanableRatio: t.MinCleanableRatio, FlushMessages: t.FlushMessages, FlushMs: t.FlushMs,
	}
}

// Delete removes a topic.
func (r *Registry) Delete(t *Topic, admit Admit) *Error {
	r.change.Lock()
	defer r.change.Unlock()
	c := r.catalog.Snapshot().TopicByID(t.ID)
	if c == nil {
		return refuse(api.ErrUnknownTopicOrPartition, "This server does not host this topic-partition.")
	}
	if err := admit.refused(c.Partitions); err != nil {
		return err
	}
	err := r.catalogError("delete a topic", r.catalog.DeleteTopics([]*catalog.Topic{c})[0])
	if err == nil && r.removed != nil {
		r.removed(t.Name) // after nobody finds it any more, and before one of that name can be made
	}
	return err
}

// AlterTopic changes the settings of a topic; replace resets those that changes does not name.
func (r *Registry) AlterTopic(name string, changes []config.Change, replace, validateOnly bool) *Error {
	r.change.Lock()
	defer r.change.Unlock()
	t := r.ByName(name)
	if t == nil {
		return refuse(api.ErrUnknownTopicOrPartition, "The topic '%s' does not exist.", name)
	}
	current := t.Overrides()
	if replace {
		current = nil
	}
	next, err := r.Config().AlterTopic(current, changes)
	if err != nil {
		return &Error{Code: api.ErrorCode(err.Code), Message: err.Message}
	}
	if validateOnly {
		return nil
	}
	return r.catalogError("alter a topic", r.catalog.SetTopicConfigs(name, next))
}

// AlterBroker changes the dynamic settings of this broker (own) or the defaults of all brokers.
func (r *Registry) AlterBroker(own bool, changes []config.Change, replace, validateOnly bool) *Error {
	r.change.Lock()
	defer r.change.Unlock()
	node := ""
	if own {
		node = strconv.Itoa(int(r.nodeID))
	}
	current := r.catalog.Snapshot().BrokerConfigs(node)
	if replace {
		current = nil
	}
	next, err := r.Config().AlterBroker(own, current, changes)
	if err != nil {
		return &Error{Code: api.ErrorCode(err.Code), Message: err.Message}
	}
	if validateOnly {
		return nil
	}
	if err := r.catalogError("alter the broker", r.catalog.SetBrokerConfigs(node, next)); err != nil {
		return err
	}
	r.applyBroker()
	return nil
}

// applyBroker puts the broker's dynamic settings in force, and with them the defaults of every topic.
func (r *Registry) applyBroker() {
	snap := r.catalog.Snapshot()
	all, own := snap.BrokerConfigs(""), snap.BrokerConfigs(strconv.Itoa(int(r.nodeID)))
	if len(all)+len(own) == 0 && r.Config() == r.static {
		return
	}
	cfg, bad := r.static.WithDynamic(all, own)
	for _, e := range bad {
		r.log.Warn("a dynamic broker setting is not in force", "key", e.Key, "reason", e.Message)
	}
	r.config.Store(cfg)
	for _, c := range snap.Topics() {
		r.apply(handle(c), c.Configs)
	}
	if r.applied != nil {
		r.applied(cfg)
	}
}

// catalogError tells the operator of a change that the catalog did not take, and makes the answer; nil for nil.
func (r *Registry) catalogError(what string, err error) *Error {
	var collision *catalog.CollisionError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, catalog.ErrUnknownTopic):
		return refuse(api.ErrUnknownTopicOrPartition, "This server does not host this topic-partition.")
	case errors.As(err, &collision):
		return refuse(api.ErrInvalidTopicException, "Topic '%s' collides with existing topic: %s", collision.Name, collision.Other)
	}
	r.log.Error("cannot "+what+": the catalog did not take the change", "error", err)
	return &Error{Code: api.ErrKafkaStorageError, Message: fmt.Sprintf("cannot %s: %v", what, err)}
}
