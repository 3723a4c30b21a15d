package quota

import "net/netip"

// Kind is what a quota limits.
type Kind uint8

// The kinds that belong to users and client ids.
const (
	Produce  Kind = iota // bytes per second
	Consume              // bytes per second
	Request              // percent of a processor
	Mutation             // partitions made or removed per second
	kinds
)

// Keys of quotas, as Kafka names them.
const (
	ProducerByteRate       = "producer_byte_rate"
	ConsumerByteRate       = "consumer_byte_rate"
	RequestPercentage      = "request_percentage"
	ControllerMutationRate = "controller_mutation_rate"
	ConnectionCreationRate = "connection_creation_rate"
)

var kindKeys = [kinds]string{ProducerByteRate, ConsumerByteRate, RequestPercentage, ControllerMutationRate}

// Types of entities, as Kafka names them.
const (
	TypeUser     = "user"
	TypeClientID = "client-id"
	TypeIP       = "ip"
)

// Name is one part of an entity: not given, the default of its type, or a name.
type Name struct {
	Given, Default bool
	Text           string // with Given and not Default
}

// Entity is what limits are set for: a user, a client id, both, or an address.
type Entity struct{ User, ClientID, IP Name }

// Limits are those of one entity, by key.
type Limits struct {
	Entity Entity
	Values map[string]float64
}

// owner is who pays: the levels of the limit that applies, as in Apache Kafka. A limit of a user alone is shared by all client ids of the
// user, one of a client id by all users.
type owner struct{ user, clientID string }

// levels are the limits of one kind. Names that are defaults are in maps of their own.
type levels struct {
	userClient         map[owner]float64
	userAnyClient      map[string]float64
	user               map[string]float64
	anyUserClient      map[string]float64
	client             map[string]float64
	anyUserAnyClient   float64 // those below 0 are not set
	anyUser, anyClient float64
}

// Rules are the limits in force for users and client ids. They do not change.
type Rules struct{ by [kinds]levels }

// newRules sorts limits by level; nil when none is for users or client ids.
func newRules(all []Limits) *Rules {
	r, some := &Rules{}, false
	for k := range r.by {
		l := &r.by[k]
		*l = levels{map[owner]float64{}, map[string]float64{}, map[string]float64{}, map[string]float64{}, map[string]float64{}, -1, -1, -1}
		for i := range all {
			if v, ok := all[i].Values[kindKeys[k]]; ok && !all[i].Entity.IP.Given {
				l.set(&all[i].Entity, v)
				some = true
			}
		}
	}
	if !some {
		return nil
	}
	return r
}

func (l *levels) set(e *Entity, v float64) {
	u, c := &e.User, &e.ClientID
	switch {
	case u.Default && c.Default:
		l.anyUserAnyClient = v
	case u.Default && c.Given:
		l.anyUserClient[c.Text] = v
	case u.Default:
		l.anyUser = v
	case u.Given && c.Default:
		l.userAnyClient[u.Text] = v
	case u.Given && c.Given:
		l.userClient[owner{u.Text, c.Text}] = v
	case u.Given:
		l.user[u.Text] = v
	case c.Default:
		l.anyClient = v
	case c.Given:
		l.client[c.Text] = v
	}
}

// limit finds the limit of a client, the most particular first, and who pays for it.
func (l *levels) limit(user, clientID string) (limit float64, pays owner, ok bool) {
	both := owner{user, clientID}
	if v, ok := l.userClient[both]; ok {
		return v, both, true
	}
	if v, ok := l.userAnyClient[user]; ok {
		return v, both, true
	}
	if v, ok := l.user[user]; ok {
		return v, owner{user: user}, true
	}
	if v, ok := l.anyUserClient[clientID]; ok {
		return v, both, true
	}
	if l.anyUserAnyClient >= 0 {
		return l.anyUserAnyClient, both, true
	}
	if l.anyUser >= 0 {
		return l.anyUser, owner{user: user}, true
	}
	if v, ok := l.client[clientID]; ok {
		return v, owner{clientID: clientID}, true
	}
	return l.anyClient, owner{clientID: clientID}, l.anyClient >= 0
}

// addressRules are the limits on new connections.
type addressRules struct {
	by  map[netip.Addr]float64
	any float64 // below 0: none
}

func newAddressRules(all []Limits) *addressRules {
	r := &addressRules{by: map[netip.Addr]float64{}, any: -1}
	for i := range all {
		v, ok := all[i].Values[ConnectionCreationRate]
		e := &all[i].Entity.IP
		if !ok || !e.Given {
			continue
		}
		if e.Default {
			r.any = v
			continue
		}
		// Names of hosts are resolved by whoever sets the limit.
		if a, err := netip.ParseAddr(e.Text); err == nil {
			r.by[a.Unmap()] = v
		}
	}
	if r.any < 0 && len(r.by) == 0 {
		return nil
	}
	return r
}

// limit is the rate of an address.
func (r *addressRules) limit(a netip.Addr) (float64, bool) {
	if v, ok := r.by[a]; ok {
		return v, true
	}
	return r.any, r.any >= 0
}
