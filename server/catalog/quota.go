package catalog

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
)

// QuotaEntity is a part of what a quota is for: type "user", "client-id" or "ip"; the default of the type, or a name.
type QuotaEntity struct {
	Type, Name string
	Default    bool
}

// Quota is the quotas of one entity, whose parts are in order of type. It must not be modified once it is in a Snapshot.
type Quota struct {
	Entity []QuotaEntity
	Values map[string]float64
}

// QuotaChange sets and removes quotas of one entity. What is removed and not there makes no difference.
type QuotaChange struct {
	Entity []QuotaEntity
	Set    map[string]float64
	Remove []string
}

// Quotas lists the quotas of all entities, in order of their keys; made for the call.
func (s *Snapshot) Quotas() []*Quota {
	out := make([]*Quota, 0, len(s.quotas))
	for _, key := range slices.Sorted(maps.Keys(s.quotas)) {
		out = append(out, s.quotas[key])
	}
	return out
}

// AlterQuotas makes changes with one sync: all of them, or with the store's error none. Names are copied.
func (c *Catalog) AlterQuotas(changes []QuotaChange) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.begun()
	quotas := maps.Clone(ch.snap.quotas)
	if quotas == nil {
		quotas = map[string]*Quota{}
	}
	for i := range changes {
		key := quotaKey(changes[i].Entity)
		name := string(key[1:])
		old := quotas[name]
		q := old.with(&changes[i])
		switch {
		case old == nil && len(q.Values) == 0 || old != nil && maps.Equal(old.Values, q.Values):
		case len(q.Values) == 0:
			delete(quotas, name)
			ch.batch.Delete(key)
		default:
			quotas[name] = q
			ch.batch.Put(key, q.append(nil))
		}
	}
	ch.snap.quotas = quotas
	if c.hooks.QuotasChanged != nil {
		ch.after = append(ch.after, func() { c.hooks.QuotasChanged(ch.snap.Quotas()) })
	}
	return c.commit(ch)
}

// with is q, which may be nil, after a change.
func (q *Quota) with(change *QuotaChange) *Quota {
	n := &Quota{Values: map[string]float64{}}
	if q != nil {
		maps.Copy(n.Values, q.Values)
	}
	for _, e := range sortedEntity(change.Entity) {
		n.Entity = append(n.Entity, QuotaEntity{Type: strings.Clone(e.Type), Name: strings.Clone(e.Name), Default: e.Default})
	}
	for key, v := range change.Set {
		n.Values[strings.Clone(key)] = v
	}
	for _, key := range change.Remove {
		delete(n.Values, key)
	}
	return n
}

func sortedEntity(parts []QuotaEntity) []QuotaEntity {
	return slices.SortedFunc(slices.Values(parts), func(a, b QuotaEntity) int { return strings.Compare(a.Type, b.Type) })
}

// quotaKey is the key of an entity in the store.
func quotaKey(parts []QuotaEntity) []byte {
	b := []byte{kindQuota}
	for _, e := range sortedEntity(parts) {
		named := byte(1)
		if e.Default {
			named = 0
		}
		b = appendString(append(appendString(b, e.Type), named), e.Name)
	}
	return b
}

func (q *Quota) append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, recordVersion), uint64(len(q.Values)))
	for _, key := range slices.Sorted(maps.Keys(q.Values)) {
		b = binary.BigEndian.AppendUint64(appendString(b, key), math.Float64bits(q.Values[key]))
	}
	return b
}

// decodeQuota reads the quotas of an entity; d is at the value.
func decodeQuota(key string, d *decoder) (*Quota, error) {
	q := &Quota{Values: map[string]float64{}}
	e := &decoder{b: []byte(key)}
	for len(e.b) > 0 {
		part := QuotaEntity{Type: e.string(), Default: e.number8() == 0, Name: e.string()}
		if e.err != nil {
			return nil, e.err
		}
		q.Entity = append(q.Entity, part)
	}
	for n := d.number(uint64(len(d.b))); n > 0 && d.err == nil; n-- {
		name := d.string()
		if v := d.bytes(8); d.err == nil {
			q.Values[name] = math.Float64frombits(binary.BigEndian.Uint64(v))
		}
	}
	return q, d.done()
}
