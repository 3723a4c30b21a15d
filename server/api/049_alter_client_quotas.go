package api

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/catalog"
	"kaas/server/quota"
)

// AlterClientQuotas, key 49, v0-v1. v1 flexible.
//
// All entities of a request are changed by one durable write, and the new limits are in force when the answer is sent. An entity that is
// refused does not keep the others from being changed.
//
// Deviation: a value that is not a number (NaN) is refused with 42; Apache takes it, and then throttles nobody.
func alterClientQuotas(c *call, q *api.AlterClientQuotasRequest, p *api.AlterClientQuotasResponse) {
	results := map[string]*api.AlterClientQuotasResponseEntryData{}
	var changes []catalog.QuotaChange
	for i := range q.Entries {
		entity := quotaEntity(q.Entries[i].Entity)
		change, why := quotaChange(entity, q.Entries[i].Ops)
		name := entityText(entity)
		r := results[name]
		if r != nil {
			why = "Ignoring duplicate entity " + name
		} else {
			r = &api.AlterClientQuotasResponseEntryData{Entity: shownEntity(entity)}
			results[name] = r
		}
		if why != "" {
			r.ErrorCode, r.ErrorMessage = api.ErrInvalidRequest, wire.Some(why)
			continue
		}
		changes = append(changes, change)
	}
	if !q.ValidateOnly && len(changes) > 0 {
		if err := c.s.topics.Catalog().AlterQuotas(changes); err != nil {
			c.s.log.Error("cannot alter quotas: the catalog did not take the change", "error", err)
			for _, change := range changes {
				r := results[entityText(change.Entity)]
				r.ErrorCode, r.ErrorMessage = api.ErrKafkaStorageError, wire.Some(err.Error())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(results)) {
		p.Entries = append(p.Entries, *results[name])
	}
}

// quotaEntity is an entity with strings of its own; of parts of one type the last counts, as in Apache, where it is a map.
func quotaEntity(parts []api.AlterClientQuotasRequestEntityData) []catalog.QuotaEntity {
	var out []catalog.QuotaEntity
	for i := range parts {
		e := catalog.QuotaEntity{Type: strings.Clone(parts[i].EntityType), Name: strings.Clone(parts[i].EntityName.String), Default: !parts[i].EntityName.Valid}
		at := slices.IndexFunc(out, func(o catalog.QuotaEntity) bool { return o.Type == e.Type })
		if at >= 0 {
			out[at] = e
		} else {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b catalog.QuotaEntity) int {
		return cmp.Or(cmp.Compare(entityRank(a.Type), entityRank(b.Type)), strings.Compare(a.Type, b.Type))
	})
	return out
}

// entityRank is the place of a type in Apache's answers.
func entityRank(kind string) int {
	return slices.Index([]string{quota.TypeClientID, quota.TypeUser, quota.TypeIP}, kind)
}

// entityText is Apache's text for an entity; it names it, too.
func entityText(entity []catalog.QuotaEntity) string {
	parts := make([]string, len(entity))
	for i, e := range entity {
		name := e.Name
		if e.Default {
			name = "null"
		}
		parts[i] = e.Type + "=" + name
	}
	return "ClientQuotaEntity(entries={" + strings.Join(parts, ", ") + "})"
}

func shownEntity(entity []catalog.QuotaEntity) []api.AlterClientQuotasResponseEntityData {
	out := []api.AlterClientQuotasResponseEntityData{}
	for _, e := range entity {
		out = append(out, api.AlterClientQuotasResponseEntityData{EntityType: e.Type, EntityName: wire.NullString{String: e.Name, Valid: !e.Default}})
	}
	return out
}

// quotaChange is what is asked for of an entity; why says what is wrong with it.
func quotaChange(entity []catalog.QuotaEntity, ops []api.AlterClientQuotasRequestOpData) (change catalog.QuotaChange, why string) {
	keys, why := quotaKeys(entity)
	if why != "" {
		return change, why
	}
	change = catalog.QuotaChange{Entity: entity, Set: map[string]float64{}}
	seen := map[string]bool{}
	for i := range ops {
		op := &ops[i]
		if seen[op.Key] {
			return change, "Ignoring duplicate entity " + entityText(entity)
		}
		seen[op.Key] = true
		if op.Remove {
			change.Remove = append(change.Remove, op.Key)
			continue
		}
		most, ok := keys[op.Key]
		if !ok {
			return change, "Invalid configuration key " + op.Key
		}
		if why = quotaValue(op.Key, op.Value, most); why != "" {
			return change, why
		}
		change.Set[op.Key] = op.Value
	}
	return change, ""
}

// quotaKeys are the keys that an entity may have, each with its greatest value: that of the type INT or LONG, or infinity for a DOUBLE.
func quotaKeys(entity []catalog.QuotaEntity) (keys map[string]float64, why string) {
	if len(entity) == 0 {
		return nil, "Invalid empty client quota entity"
	}
	address, client := false, false
	for _, e := range entity {
		switch e.Type {
		case quota.TypeUser, quota.TypeClientID:
			client = true
		case quota.TypeIP:
			address = true
		default:
			return nil, "Unhandled client quota entity type: " + e.Type
		}
		if !e.Default && e.Name == "" {
			return nil, "Empty " + e.Type + " not supported"
		}
	}
	switch {
	case address && client:
		return nil, "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
	case !address:
		return map[string]float64{quota.ProducerByteRate: math.MaxInt64, quota.ConsumerByteRate: math.MaxInt64,
			quota.RequestPercentage: math.Inf(1), quota.ControllerMutationRate: math.Inf(1)}, ""
	}
	if e := entity[0]; !e.Default {
		if _, err := net.ResolveIPAddr("ip", e.Name); err != nil {
			return nil, e.Name + " is not a valid IP or resolvable host."
		}
	}
	return map[string]float64{quota.ConnectionCreationRate: math.MaxInt32}, ""
}

// quotaValue says what is wrong with a value.
func quotaValue(key string, v, most float64) string {
	const epsilon = 1e-6 // as Apache: values arrive as floats
	switch {
	case v <= 0 || math.IsNaN(v):
		return fmt.Sprintf("Quota %s must be greater than 0", key)
	case math.IsInf(most, 1):
		return ""
	case v > most && most == math.MaxInt32:
		return fmt.Sprintf("Proposed value for %s is too large for an INT.", key)
	case v > most:
		return fmt.Sprintf("Proposed value for %s is too large for a LONG.", key)
	case math.Abs(math.Floor(v+epsilon)-v) > epsilon:
		return fmt.Sprintf("%s cannot be a fractional value.", key)
	}
	return ""
}
