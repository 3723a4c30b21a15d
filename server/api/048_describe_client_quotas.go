package api

import (
	"fmt"
	"maps"
	"slices"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/catalog"
	"kaas/server/quota"
)

// DescribeClientQuotas, key 48, v0-v1. v1 flexible.
func describeClientQuotas(c *call, q *api.DescribeClientQuotasRequest, p *api.DescribeClientQuotasResponse) {
	filter, code, why := quotaFilter(q)
	p.ErrorCode, p.ErrorMessage = code, wire.Some(why)
	if code != api.ErrNone {
		p.Entries = nil
		return
	}
	p.Entries = []api.DescribeClientQuotasResponseEntryData{}
	for _, of := range c.s.topics.Catalog().Snapshot().Quotas() {
		if !filter.matches(of) {
			continue
		}
		e := api.Next(&p.Entries)
		for _, part := range of.Entity {
			e.Entity = append(e.Entity, api.DescribeClientQuotasResponseEntityData{EntityType: part.Type,
				EntityName: wire.NullString{String: part.Name, Valid: !part.Default}})
		}
		for _, key := range slices.Sorted(maps.Keys(of.Values)) {
			e.Values = append(e.Values, api.DescribeClientQuotasResponseValueData{Key: key, Value: of.Values[key]})
		}
	}
}

// How a component of a filter matches (DescribeClientQuotas).
const (
	matchExact     = 0
	matchDefault   = 1
	matchSpecified = 2 // any, the default included
)

// entityFilter says which entities are asked for.
type entityFilter struct {
	components []api.DescribeClientQuotasRequestComponentData
	strict     bool // an entity has no other parts
}

// quotaFilter checks the components of a request.
func quotaFilter(q *api.DescribeClientQuotasRequest) (f entityFilter, code api.ErrorCode, why string) {
	seen := map[string]bool{}
	for i := range q.Components {
		c := &q.Components[i]
		switch c.EntityType {
		case quota.TypeUser, quota.TypeClientID, quota.TypeIP:
		case "":
			return f, api.ErrInvalidRequest, "Invalid empty entity type."
		default:
			return f, api.ErrUnsupportedVersion, "Unsupported entity type " + c.EntityType
		}
		if seen[c.EntityType] {
			return f, api.ErrInvalidRequest, fmt.Sprintf("Entity type %s cannot appear more than once in the filter.", c.EntityType)
		}
		seen[c.EntityType] = true
		switch {
		case c.MatchType < matchExact || c.MatchType > matchSpecified:
			return f, api.ErrInvalidRequest, fmt.Sprintf("Unknown match type %d", c.MatchType)
		case c.MatchType == matchExact && !c.Match.Valid:
			return f, api.ErrInvalidRequest, "An exact match needs a string to match, not null."
		case c.MatchType == matchDefault && c.Match.Valid:
			return f, api.ErrInvalidRequest, "A match of the default cannot have a string to match."
		case c.MatchType == matchSpecified && c.Match.Valid:
			return f, api.ErrInvalidRequest, "A match of any name cannot have a string to match."
		}
	}
	if seen[quota.TypeIP] && len(seen) > 1 {
		return f, api.ErrInvalidRequest, "Invalid entity filter component combination: ip stands alone."
	}
	return entityFilter{q.Components, q.Strict}, api.ErrNone, ""
}

func (f *entityFilter) matches(q *catalog.Quota) bool {
	for i := range f.components {
		c := &f.components[i]
		at := slices.IndexFunc(q.Entity, func(e catalog.QuotaEntity) bool { return e.Type == c.EntityType })
		switch {
		case at < 0:
			return false
		case c.MatchType == matchExact && (q.Entity[at].Default || q.Entity[at].Name != c.Match.String):
			return false
		case c.MatchType == matchDefault && !q.Entity[at].Default:
			return false
		}
	}
	return !f.strict || len(q.Entity) == len(f.components)
}
