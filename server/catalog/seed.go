package catalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"kaas/engine/state"
)

// Kinds of keys that only an import writes.
const (
	kindOrigin        = 'O'
	kindACL           = 'A'
	kindScram         = 'U'
	kindFeature       = 'F'
	kindToken         = 'D'
	kindClientMetrics = 'C'
)

// OriginKRaft is the kind of origin of a data directory that Apache Kafka wrote in KRaft mode.
const OriginKRaft = "kraft"

// ErrNotEmpty is the error of Plant for a store that holds something.
var ErrNotEmpty = errors.New("catalog: the store is not empty")

// Origin says where an imported data directory came from.
type Origin struct {
	Kind           string // OriginKRaft
	MetadataOffset int64  // end of what was read of the metadata log
}

// ACL is an access control entry; the numbers are Kafka's.
type ACL struct {
	ID                        [16]byte
	ResourceType, PatternType int8
	Operation, Permission     int8
	Resource, Principal, Host string
}

// ScramUser is a SCRAM credential; Mechanism is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512.
type ScramUser struct {
	Name                       string
	Mechanism                  int8
	Salt, StoredKey, ServerKey []byte
	Iterations                 int32
}

// Token is a delegation token; times are milliseconds since 1970.
type Token struct {
	ID, Owner, Requester       string
	Renewers                   []string
	IssuedMs, MaxMs, ExpiresMs int64
}

// Kept is what an import stores beside topics and settings; of all that, quotas alone are used so far.
type Kept struct {
	ACLs          []ACL
	Users         []ScramUser
	Quotas        []Quota
	Features      map[string]int16
	Tokens        []Token
	ClientMetrics map[string]map[string]string
}

// SeedTopic is a topic of a Seed; ID must be given.
type SeedTopic struct {
	NewTopic
	LastEpoch int32 // highest leader epoch that any of its partitions has had
}

// Seed is what the catalog of an imported data directory begins with.
type Seed struct {
	Origin         Origin
	NodeID         int32
	ClusterID      string
	NextProducerID int64
	Topics         []SeedTopic
	BrokerConfigs  map[string]map[string]string // as Snapshot.BrokerConfigs
	Kept
}

// plantBatch is how many keys Plant writes at a time.
const plantBatch = 1000

// Plant writes a seed into an empty store, for a later Open. It is durable, and refused topics (ErrInvalidName and the other errors
// of CreateTopics) leave the store as it was; after an error of the store itself the store is of no use.
func Plant(store Store, s *Seed) error {
	err := store.Scan(nil, func(_, _ []byte) error { return ErrNotEmpty })
	if err != nil {
		return err
	}
	if s.NodeID < 0 || s.NextProducerID < 0 || s.Origin.MetadataOffset < 0 {
		return errRecord
	}
	p := planting{store: store}
	topics, err := seedTopics(s.Topics)
	if err != nil {
		return err
	}
	for _, t := range topics {
		p.put(topicKey(t.Name), t.append(nil))
	}
	for node, configs := range s.BrokerConfigs {
		p.put(brokerKey(node), appendMap([]byte{recordVersion}, configs))
	}
	s.Kept.plant(&p)
	p.put([]byte{kindOrigin}, appendOrigin(s.Origin))
	p.put([]byte{kindProducer}, appendNumber(uint64(s.NextProducerID)))
	p.put([]byte{kindStarts}, appendNumber(0))
	p.put([]byte{kindIdentity}, appendIdentity(s.NodeID, s.ClusterID))
	return p.flush(true)
}

// seedTopics judges topics as CreateTopics would.
func seedTopics(list []SeedTopic) ([]*Topic, error) {
	ch := &change{snap: emptySnapshot(), edit: &edit{}}
	out := make([]*Topic, 0, len(list))
	for i := range list {
		n := &list[i]
		err := ch.check(&n.NewTopic)
		if err == nil && (n.ID == [16]byte{} || ch.snap.TopicByID(n.ID) != nil || n.LastEpoch < 0) {
			err = errRecord
		}
		if err != nil {
			return nil, fmt.Errorf("topic %q: %w", n.Name, err)
		}
		t := &Topic{Name: n.Name, ID: n.ID, Partitions: n.Partitions, Internal: n.Internal, Configs: cloneConfigs(n.Configs), epochBase: n.LastEpoch}
		ch.snap.set(ch.edit, t)
		out = append(out, t)
	}
	return out, nil
}

// planting collects keys into batches.
type planting struct {
	store Store
	batch state.Batch
	err   error
}

func (p *planting) put(key, value []byte) {
	p.batch.Put(key, value)
	if p.batch.Len() >= plantBatch && p.err == nil {
		p.err = p.flush(false)
	}
}

func (p *planting) flush(durable bool) error {
	if p.err != nil {
		return p.err
	}
	err := p.store.Apply(&p.batch, durable)
	p.batch.Reset()
	return err
}

func (k *Kept) plant(p *planting) {
	for i := range k.ACLs {
		a := &k.ACLs[i]
		b := []byte{recordVersion, byte(a.ResourceType), byte(a.PatternType), byte(a.Operation), byte(a.Permission)}
		p.put(append([]byte{kindACL}, a.ID[:]...), appendString(appendString(appendString(b, a.Resource), a.Principal), a.Host))
	}
	for i := range k.Users {
		u := &k.Users[i]
		b := []byte{recordVersion}
		for _, part := range [][]byte{u.Salt, u.StoredKey, u.ServerKey} {
			b = appendString(b, string(part))
		}
		p.put(append([]byte{kindScram, byte(u.Mechanism)}, u.Name...), binary.AppendUvarint(b, uint64(u.Iterations)))
	}
	for i := range k.Quotas {
		q := &k.Quotas[i]
		p.put(quotaKey(q.Entity), q.append(nil))
	}
	for name, level := range k.Features {
		p.put(append([]byte{kindFeature}, name...), appendNumber(uint64(level)))
	}
	for _, t := range k.Tokens {
		b := appendString(appendString([]byte{recordVersion}, t.Owner), t.Requester)
		b = binary.AppendUvarint(b, uint64(len(t.Renewers)))
		for _, r := range t.Renewers {
			b = appendString(b, r)
		}
		for _, ms := range []int64{t.IssuedMs, t.MaxMs, t.ExpiresMs} {
			b = binary.AppendUvarint(b, uint64(ms))
		}
		p.put(append([]byte{kindToken}, t.ID...), b)
	}
	for name, m := range k.ClientMetrics {
		p.put(append([]byte{kindClientMetrics}, name...), appendMap([]byte{recordVersion}, m))
	}
}

func appendOrigin(o Origin) []byte {
	return binary.AppendUvarint(appendString([]byte{recordVersion}, o.Kind), uint64(o.MetadataOffset))
}

// ReadOrigin says where the data directory of a store came from; ok is false if it was not imported.
func ReadOrigin(store Store) (o Origin, ok bool, err error) {
	err = store.Scan([]byte{kindOrigin}, func(_, value []byte) error {
		d := newDecoder(value)
		o, ok = Origin{Kind: d.string(), MetadataOffset: int64(d.number(math.MaxInt64))}, true
		return d.done()
	})
	return o, ok, err
}

// ReadKept reads what an import stored, each list in order of its keys.
func ReadKept(store Store) (*Kept, error) {
	k := &Kept{Features: map[string]int16{}, ClientMetrics: map[string]map[string]string{}}
	for kind, read := range map[byte]func(key string, d *decoder){
		kindACL: k.readACL, kindScram: k.readUser, kindQuota: k.readQuota, kindToken: k.readToken,
		kindFeature:       func(name string, d *decoder) { k.Features[name] = int16(d.number(math.MaxInt16)) },
		kindClientMetrics: func(name string, d *decoder) { k.ClientMetrics[name] = d.pairs() },
	} {
		err := store.Scan([]byte{kind}, func(key, value []byte) error {
			d := newDecoder(value)
			read(string(key[1:]), d)
			if err := d.done(); err != nil {
				return fmt.Errorf("catalog: key %q: %w", key, err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *Kept) readACL(key string, d *decoder) {
	a := ACL{}
	if copy(a.ID[:], key) != len(a.ID) || len(key) != len(a.ID) {
		d.fail(errRecord)
	}
	a.ResourceType, a.PatternType, a.Operation, a.Permission = d.number8(), d.number8(), d.number8(), d.number8()
	a.Resource, a.Principal, a.Host = d.string(), d.string(), d.string()
	k.ACLs = append(k.ACLs, a)
}

func (d *decoder) number8() int8 {
	if b := d.bytes(1); d.err == nil {
		return int8(b[0])
	}
	return 0
}

func (k *Kept) readUser(key string, d *decoder) {
	if key == "" {
		d.fail(errRecord)
		return
	}
	u := ScramUser{Mechanism: int8(key[0]), Name: key[1:]}
	u.Salt, u.StoredKey, u.ServerKey = []byte(d.string()), []byte(d.string()), []byte(d.string())
	u.Iterations = int32(d.number(math.MaxInt32))
	k.Users = append(k.Users, u)
}

func (k *Kept) readQuota(key string, d *decoder) {
	q, err := decodeQuota(key, d)
	if err != nil {
		d.fail(err)
		return
	}
	k.Quotas = append(k.Quotas, *q)
}

func (k *Kept) readToken(key string, d *decoder) {
	t := Token{ID: key, Owner: d.string(), Requester: d.string()}
	for n := d.number(uint64(len(d.b))); n > 0 && d.err == nil; n-- {
		t.Renewers = append(t.Renewers, d.string())
	}
	t.IssuedMs, t.MaxMs, t.ExpiresMs = int64(d.number(math.MaxInt64)), int64(d.number(math.MaxInt64)), int64(d.number(math.MaxInt64))
	k.Tokens = append(k.Tokens, t)
}
