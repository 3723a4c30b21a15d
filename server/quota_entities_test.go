package server

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// quotaEntity makes an entity of text: "user=alice client-id=*", where * is the default of its type.
func quotaEntity(text string) (out []api.AlterClientQuotasRequestEntityData) {
	for _, part := range strings.Fields(text) {
		kind, name, _ := strings.Cut(part, "=")
		out = append(out, api.AlterClientQuotasRequestEntityData{EntityType: kind, EntityName: wire.NullString{String: strings.TrimPrefix(name, "*"), Valid: name != "*"}})
	}
	return out
}

// alterQuota sets the quota of an entity; 0 removes it.
func (c *client) alterQuota(entity, key string, value float64) {
	c.t.Helper()
	q := api.AlterClientQuotasRequest{Entries: []api.AlterClientQuotasRequestEntryData{{Entity: quotaEntity(entity),
		Ops: []api.AlterClientQuotasRequestOpData{{Key: key, Value: value, Remove: value == 0}}}}}
	var p api.AlterClientQuotasResponse
	if c.call(api.KeyAlterClientQuotas, 1, &q, &p); p.Entries[0].ErrorCode != api.ErrNone {
		c.t.Fatalf("quota of %s: %v %s", entity, p.Entries[0].ErrorCode, p.Entries[0].ErrorMessage.String)
	}
}

// quotaLevels are the forms of entities that a client may be limited by, in order of precedence (KIP-55); CLIENT stands for its client id.
var quotaLevels = []string{
	"user=ANONYMOUS client-id=CLIENT", "user=ANONYMOUS client-id=*", "user=ANONYMOUS",
	"user=* client-id=CLIENT", "user=* client-id=*", "user=*", "client-id=CLIENT", "client-id=*",
}

// Of all forms that apply to a client the most particular limits it, and none that is less so. Each form has a rate of its own, and the
// throttle time of 60 kB says which one was in force. Apache Kafka 3.7.2 gives the same times. The limits of a user and of the
// default user count on one meter, for both are shared by all client ids of the user.
func TestQuotaPrecedence(t *testing.T) {
	b := broker(t)
	admin := dialAs(t, b, "admin")
	admin.create("t", 1)
	checkPrecedence(t, admin, func(id string) *client { return dialAs(t, b, id) })
}

func checkPrecedence(t *testing.T, admin *client, dial func(clientID string) *client) {
	const size = 60_000
	for from := range quotaLevels {
		id := fmt.Sprint("client", from)
		for i, level := range quotaLevels {
			if level = strings.ReplaceAll(level, "CLIENT", id); i >= from {
				admin.alterQuota(level, "producer_byte_rate", float64(1000+100*i))
			} else if strings.Contains(level, id) {
				continue
			} else {
				admin.alterQuota(level, "producer_byte_rate", 0)
			}
		}
		var p api.ProduceResponse
		dial(id).call(api.KeyProduce, 9, produceRequest("t", 0, 1, made0(size)), &p)
		used := float64(size)
		if quotaLevels[from] == "user=*" {
			used += size // by the client that the user's own limit was for
		}
		inForce := used / (10 + float64(p.ThrottleTimeMs)/1000)
		if expected := float64(1000 + 100*from); math.Abs(inForce-expected) > 30 {
			t.Errorf("%s: throttled for %d ms, as by %.0f B/s; want %.0f", quotaLevels[from], p.ThrottleTimeMs, inForce, expected)
		}
	}
}

// describedEntities have quotas when quotaFilters are tried.
var describedEntities = []string{
	"user=u", "user=v", "user=*", "client-id=c", "client-id=d", "client-id=*", "user=u client-id=c", "user=u client-id=*", "user=* client-id=c", "user=* client-id=*",
	"ip=10.0.0.1", "ip=10.0.0.2", "ip=*",
}

// quotaFilters are filters of DescribeClientQuotas, TYPE=NAME, TYPE=* for the default and TYPE=? for any name or the default, with what Apache Kafka 3.7.2
// answers of describedEntities, in no order: entities that have the parts named, and strictly none besides.
var quotaFilters = []struct {
	filter        string
	code          api.ErrorCode
	loose, strict string
}{
	{"", api.ErrNone, "client-id=*, client-id=c, client-id=d, ip=*, ip=10.0.0.1, ip=10.0.0.2, user=*, user=* client-id=*, user=* client-id=c, user=u, user=u client-id=*, user=u client-id=c, user=v", ""},
	{"user=u", api.ErrNone, "user=u, user=u client-id=*, user=u client-id=c", "user=u"},
	{"user=w", api.ErrNone, "", ""},
	{"user=*", api.ErrNone, "user=*, user=* client-id=*, user=* client-id=c", "user=*"},
	{"user=?", api.ErrNone, "user=*, user=* client-id=*, user=* client-id=c, user=u, user=u client-id=*, user=u client-id=c, user=v", "user=*, user=u, user=v"},
	{"client-id=c", api.ErrNone, "client-id=c, user=* client-id=c, user=u client-id=c", "client-id=c"},
	{"client-id=*", api.ErrNone, "client-id=*, user=* client-id=*, user=u client-id=*", "client-id=*"},
	{"client-id=?", api.ErrNone, "client-id=*, client-id=c, client-id=d, user=* client-id=*, user=* client-id=c, user=u client-id=*, user=u client-id=c", "client-id=*, client-id=c, client-id=d"},
	{"user=u client-id=c", api.ErrNone, "user=u client-id=c", "user=u client-id=c"},
	{"user=u client-id=*", api.ErrNone, "user=u client-id=*", "user=u client-id=*"},
	{"user=u client-id=?", api.ErrNone, "user=u client-id=*, user=u client-id=c", "user=u client-id=*, user=u client-id=c"},
	{"user=* client-id=c", api.ErrNone, "user=* client-id=c", "user=* client-id=c"},
	{"user=* client-id=*", api.ErrNone, "user=* client-id=*", "user=* client-id=*"},
	{"user=* client-id=?", api.ErrNone, "user=* client-id=*, user=* client-id=c", "user=* client-id=*, user=* client-id=c"},
	{"user=? client-id=c", api.ErrNone, "user=* client-id=c, user=u client-id=c", "user=* client-id=c, user=u client-id=c"},
	{"user=? client-id=*", api.ErrNone, "user=* client-id=*, user=u client-id=*", "user=* client-id=*, user=u client-id=*"},
	{"user=? client-id=?", api.ErrNone, "user=* client-id=*, user=* client-id=c, user=u client-id=*, user=u client-id=c", "user=* client-id=*, user=* client-id=c, user=u client-id=*, user=u client-id=c"},
	{"ip=10.0.0.1", api.ErrNone, "ip=10.0.0.1", "ip=10.0.0.1"},
	{"ip=10.0.0.9", api.ErrNone, "", ""},
	{"ip=*", api.ErrNone, "ip=*", "ip=*"},
	{"ip=?", api.ErrNone, "ip=*, ip=10.0.0.1, ip=10.0.0.2", "ip=*, ip=10.0.0.1, ip=10.0.0.2"},
	{"user=u ip=10.0.0.1", api.ErrInvalidRequest, "", ""},
	{"x=y", api.ErrUnsupportedVersion, "", ""},
	{"user=u user=v", api.ErrInvalidRequest, "", ""},
}

func TestQuotaFilters(t *testing.T) {
	c := dial(t, broker(t))
	for _, e := range describedEntities {
		key := "producer_byte_rate"
		if strings.HasPrefix(e, "ip") {
			key = "connection_creation_rate"
		}
		c.alterQuota(e, key, 1e6)
	}
	for _, f := range quotaFilters {
		for strict, want := range map[bool]string{false: f.loose, true: f.strict} {
			if got, code := c.describeQuotas(f.filter, strict); code != f.code || strings.Join(got, ", ") != want {
				t.Errorf("%q, strict %v: %v %q, want %v %q", f.filter, strict, code, strings.Join(got, ", "), f.code, want)
			}
		}
	}
}

// describeQuotas asks for what a filter matches.
func (c *client) describeQuotas(filter string, strict bool) (out []string, code api.ErrorCode) {
	c.t.Helper()
	var q api.DescribeClientQuotasRequest
	q.Default()
	q.Strict = strict
	for _, part := range strings.Fields(filter) {
		kind, name, _ := strings.Cut(part, "=")
		f := api.Next(&q.Components)
		switch f.EntityType = kind; name {
		case "*":
			f.MatchType, f.Match = 1, wire.NullString{}
		case "?":
			f.MatchType, f.Match = 2, wire.NullString{}
		default:
			f.Match = wire.Some(name)
		}
	}
	var p api.DescribeClientQuotasResponse
	c.call(api.KeyDescribeClientQuotas, 1, &q, &p)
	for _, e := range p.Entries {
		var parts []string
		for _, part := range e.Entity {
			name := part.EntityName.String
			if !part.EntityName.Valid {
				name = "*"
			}
			parts = append(parts, part.EntityType+"="+name)
		}
		slices.Sort(parts)
		slices.Reverse(parts) // user before client-id
		out = append(out, strings.Join(parts, " "))
	}
	slices.Sort(out)
	return out, p.ErrorCode
}
