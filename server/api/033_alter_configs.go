package api

import (
	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/config"
	"kaas/server/topics"
)

// AlterConfigs, key 33, v0-v2. v2 flexible.
//
// It replaces all settings of a resource: what the request does not name is reset (regression 64). Deprecated since KIP-339.
//
// Deviation: a setting that is known and not built yet is refused unless it is given its default: nothing is without effect in silence.
// Deviation: listeners cannot be altered in a running broker; Apache opens and closes them. Not served yet.
// Deviation: CLIENT_METRICS resources (16) are refused with 42: client telemetry is not served yet.
// Deviation: policies (alter.config.policy.class.name) cannot be set, because they are Java classes.
func alterConfigs(c *call, q *api.AlterConfigsRequest, p *api.AlterConfigsResponse) {
	a := alteration{c: c, replace: true, validateOnly: q.ValidateOnly}
	for i := range q.Resources {
		r := &q.Resources[i]
		changes := make([]config.Change, 0, len(r.Configs))
		for _, k := range r.Configs {
			changes = append(changes, config.Change{Name: cloneString(k.Name), Value: cloneString(k.Value.String), Null: !k.Value.Valid})
		}
		a.add(r.ResourceType, r.ResourceName, changes)
	}
	for _, r := range a.run() {
		o := api.Next(&p.Responses)
		o.ResourceType, o.ResourceName, o.ErrorCode, o.ErrorMessage = r.kind, r.name, r.code, r.message
	}
}

// alteration is what AlterConfigs and IncrementalAlterConfigs have in common.
type alteration struct {
	c            *call
	replace      bool // what is not named is reset
	validateOnly bool
	resources    []alteredResource
}

// alteredResource is one resource of a request, and its answer.
type alteredResource struct {
	kind    int8
	name    string
	changes []config.Change
	code    api.ErrorCode
	message wire.NullString
}

// add notes a resource.
func (a *alteration) add(kind int8, name string, changes []config.Change) {
	a.resources = append(a.resources, alteredResource{kind: kind, name: name, changes: changes})
}

// run alters every resource; one that is named twice is refused both times.
func (a *alteration) run() []alteredResource {
	type id struct {
		kind int8
		name string
	}
	named := make(map[id]int)
	for i := range a.resources {
		named[id{a.resources[i].kind, a.resources[i].name}]++
	}
	for i := range a.resources {
		r := &a.resources[i]
		var err *topics.Error
		if named[id{r.kind, r.name}] > 1 {
			err = &topics.Error{Code: api.ErrInvalidRequest, Message: "Each resource must appear at most once."}
		} else {
			err = a.alter(r)
		}
		if err != nil {
			r.code, r.message = err.Code, wire.Some(err.Message)
		}
	}
	return a.resources
}

// alter changes one resource.
func (a *alteration) alter(r *alteredResource) *topics.Error {
	ts := a.c.s.topics
	switch r.kind {
	case resourceTopic:
		return ts.AlterTopic(r.name, r.changes, a.replace, a.validateOnly)
	case resourceBroker:
		if r.name != "" {
			if err := a.c.checkBrokerName(r.name, " or empty string"); err != nil {
				return err
			}
		}
		return ts.AlterBroker(r.name != "", r.changes, a.replace, a.validateOnly)
	case resourceBrokerLogger:
		if err := a.c.checkBrokerName(r.name, ""); err != nil {
			return err
		}
		if a.replace {
			return &topics.Error{Code: api.ErrInvalidRequest, Message: "AlterConfigs does not support log levels; use IncrementalAlterConfigs."}
		}
		return a.c.s.logger.alter(r.changes, a.validateOnly)
	}
	return &topics.Error{Code: api.ErrInvalidRequest, Message: api.ErrInvalidRequest.Message()}
}
