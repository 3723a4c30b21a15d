package kraft

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/catalog"
)

// Resource types of ConfigRecord.
const (
	resourceTopic         = 2
	resourceBroker        = 4
	resourceClientMetrics = 16
)

// noLeaderChange is the Leader of a PartitionChangeRecord that leaves it as it is.
const noLeaderChange = -2

// image is the state that the metadata records come to.
type image struct {
	snapshot string // file, "" for none
	end      int64  // offset after the last record
	torn     bool   // the log ended inside a batch, which never counted

	topics   map[wire.UUID]*topic
	removed  map[wire.UUID]bool // topics deleted by a record that was read
	names    map[string]wire.UUID
	configs  map[int8]map[string]map[string]string // by resource type and name
	acls     map[wire.UUID]catalog.ACL
	users    map[userKey]catalog.ScramUser
	quotas   map[string]*catalog.Quota
	features map[string]int16
	tokens   map[string]catalog.Token
	nextPID  int64
}

type topic struct {
	name       string
	id         wire.UUID
	partitions map[int32]*partition
}

type partition struct {
	replicas    []int32
	directories []wire.UUID
	epoch       int32
}

type userKey struct {
	mechanism int8
	name      string
}

func newImage() *image {
	return &image{
		topics: map[wire.UUID]*topic{}, removed: map[wire.UUID]bool{}, names: map[string]wire.UUID{},
		configs: map[int8]map[string]map[string]string{}, acls: map[wire.UUID]catalog.ACL{},
		users: map[userKey]catalog.ScramUser{}, quotas: map[string]*catalog.Quota{}, features: map[string]int16{},
		tokens: map[string]catalog.Token{},
	}
}

// take applies a record, or keeps it until the transaction of metadata ends in which it stands (KIP-868). One that never ends, as
// after a kill, is aborted by the next controller: its records never count.
func (r *metadataReader) take(m api.Message) error {
	switch m.(type) {
	case *api.BeginTransactionRecord:
		r.inTxn, r.pending = true, nil
	case *api.EndTransactionRecord:
		for _, f := range r.pending {
			if err := f(); err != nil {
				return err
			}
		}
		r.inTxn, r.pending = false, nil
	case *api.AbortTransactionRecord:
		r.inTxn, r.pending = false, nil
	default:
		if r.inTxn {
			r.pending = append(r.pending, func() error { return r.img.apply(m) })
			return nil
		}
		return r.img.apply(m)
	}
	return nil
}

// apply is what Apache's controller does with a record. Kinds that are not named change nothing that is of use here.
func (g *image) apply(m api.Message) error {
	switch x := m.(type) {
	case *api.TopicRecord:
		g.topics[x.TopicId] = &topic{name: x.Name, id: x.TopicId, partitions: map[int32]*partition{}}
		g.names[x.Name] = x.TopicId
	case *api.PartitionRecord:
		t := g.topics[x.TopicId]
		if t == nil {
			return fmt.Errorf("partition %d of unknown topic %v", x.PartitionId, x.TopicId)
		}
		t.partitions[x.PartitionId] = &partition{replicas: x.Replicas, directories: x.Directories, epoch: x.LeaderEpoch}
	case *api.PartitionChangeRecord:
		return g.changePartition(x)
	case *api.RemoveTopicRecord:
		return g.removeTopic(x.TopicId)
	case *api.ConfigRecord:
		g.setConfig(x)
	case *api.ProducerIdsRecord:
		g.nextPID = max(g.nextPID, x.NextProducerId)
	case *api.FeatureLevelRecord:
		if x.FeatureLevel <= 0 {
			delete(g.features, x.Name)
		} else {
			g.features[x.Name] = x.FeatureLevel
		}
	default:
		g.applySecurity(m)
	}
	return nil
}

func (g *image) applySecurity(m api.Message) {
	switch x := m.(type) {
	case *api.AccessControlEntryRecord:
		g.acls[x.Id] = catalog.ACL{ID: x.Id, ResourceType: x.ResourceType, PatternType: x.PatternType, Operation: x.Operation,
			Permission: x.PermissionType, Resource: x.ResourceName, Principal: x.Principal, Host: x.Host}
	case *api.RemoveAccessControlEntryRecord:
		delete(g.acls, x.Id)
	case *api.UserScramCredentialRecord:
		g.users[userKey{x.Mechanism, x.Name}] = catalog.ScramUser{Name: x.Name, Mechanism: x.Mechanism, Salt: x.Salt,
			StoredKey: x.StoredKey, ServerKey: x.ServerKey, Iterations: x.Iterations}
	case *api.RemoveUserScramCredentialRecord:
		delete(g.users, userKey{x.Mechanism, x.Name})
	case *api.DelegationTokenRecord:
		g.tokens[x.TokenId] = catalog.Token{ID: x.TokenId, Owner: x.Owner, Requester: x.Requester, Renewers: x.Renewers,
			IssuedMs: max(x.IssueTimestamp, 0), MaxMs: max(x.MaxTimestamp, 0), ExpiresMs: max(x.ExpirationTimestamp, 0)}
	case *api.RemoveDelegationTokenRecord:
		delete(g.tokens, x.TokenId)
	case *api.ClientQuotaRecord:
		g.setQuota(x)
	}
}

func (g *image) changePartition(x *api.PartitionChangeRecord) error {
	var p *partition
	if t := g.topics[x.TopicId]; t != nil {
		p = t.partitions[x.PartitionId]
	}
	if p == nil {
		return fmt.Errorf("change of unknown partition %d of topic %v", x.PartitionId, x.TopicId)
	}
	if x.Leader != noLeaderChange {
		p.epoch++
	}
	if x.Replicas != nil {
		p.replicas = x.Replicas
	}
	if x.Directories != nil {
		p.directories = x.Directories
	}
	return nil
}

func (g *image) removeTopic(id wire.UUID) error {
	t := g.topics[id]
	if t == nil {
		return fmt.Errorf("removal of unknown topic %v", id)
	}
	delete(g.topics, id)
	if g.names[t.name] == id {
		delete(g.names, t.name)
		delete(g.configs[resourceTopic], t.name)
	}
	g.removed[id] = true
	return nil
}

func (g *image) setConfig(x *api.ConfigRecord) {
	if g.configs[x.ResourceType] == nil {
		g.configs[x.ResourceType] = map[string]map[string]string{}
	}
	of := g.configs[x.ResourceType]
	if of[x.ResourceName] == nil {
		of[x.ResourceName] = map[string]string{}
	}
	if x.Value.Valid {
		of[x.ResourceName][x.Name] = x.Value.String
		return
	}
	if delete(of[x.ResourceName], x.Name); len(of[x.ResourceName]) == 0 {
		delete(of, x.ResourceName)
	}
}

func (g *image) setQuota(x *api.ClientQuotaRecord) {
	parts := make([]catalog.QuotaEntity, len(x.Entity))
	for i, e := range x.Entity {
		parts[i] = catalog.QuotaEntity{Type: e.EntityType, Name: e.EntityName.String, Default: !e.EntityName.Valid}
	}
	slices.SortFunc(parts, func(a, b catalog.QuotaEntity) int { return strings.Compare(a.Type, b.Type) })
	key := ""
	for _, e := range parts {
		key += fmt.Sprintf("%q %q %t ", e.Type, e.Name, e.Default)
	}
	q := g.quotas[key]
	if q == nil {
		q = &catalog.Quota{Entity: parts, Values: map[string]float64{}}
		g.quotas[key] = q
	}
	if !x.Remove {
		q.Values[x.Key] = x.Value
		return
	}
	if delete(q.Values, x.Key); len(q.Values) == 0 {
		delete(g.quotas, key)
	}
}

// kept collects what the catalog only keeps, in an order that does not change from run to run.
func (g *image) kept() catalog.Kept {
	k := catalog.Kept{Features: g.features, ClientMetrics: g.configs[resourceClientMetrics]}
	for _, key := range slices.Sorted(maps.Keys(g.quotas)) {
		k.Quotas = append(k.Quotas, *g.quotas[key])
	}
	for _, key := range slices.Sorted(maps.Keys(g.tokens)) {
		k.Tokens = append(k.Tokens, g.tokens[key])
	}
	k.ACLs = slices.SortedFunc(maps.Values(g.acls), func(a, b catalog.ACL) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	k.Users = slices.SortedFunc(maps.Values(g.users), func(a, b catalog.ScramUser) int {
		return cmp.Or(cmp.Compare(a.Mechanism, b.Mechanism), strings.Compare(a.Name, b.Name))
	})
	return k
}
