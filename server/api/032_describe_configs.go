package api

import (
	"fmt"
	"strconv"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/config"
	"kaas/server/topics"
)

// DescribeConfigs, key 32, v0-v4. v1 source and synonyms in place of is-default; v3 type and documentation; v4 flexible.
//
// Deviation: a broker has the settings that begin with kaas. as well, a few defaults are those of one node (docs/configuration.md), and
// the texts of the documentation are our own.
// Deviation: the loggers of a BROKER_LOGGER are those of this broker, not Java classes.
// Deviation: CLIENT_METRICS resources (16) are refused with 42: client telemetry is not served yet.

// Config resource types.
const (
	resourceTopic        = 2
	resourceBroker       = 4
	resourceBrokerLogger = 8
)

// describeConfigs answers.
func describeConfigs(c *call, q *api.DescribeConfigsRequest, p *api.DescribeConfigsResponse) {
	for i := range q.Resources {
		r := &q.Resources[i]
		o := api.Next(&p.Results)
		o.ResourceType, o.ResourceName, o.ErrorMessage = r.ResourceType, r.ResourceName, wire.Some("")
		entries, err := c.describeResource(r)
		if err != nil {
			o.ErrorCode, o.ErrorMessage = err.Code, wire.Some(err.Message)
			continue
		}
		for k := range entries {
			describeEntry(api.Next(&o.Configs), &entries[k], q)
		}
	}
}

// describeResource lists the entries of one resource. An empty list of keys asks for all, as null does.
func (c *call) describeResource(r *api.DescribeConfigsRequestDescribeConfigsResource) ([]config.Entry, *topics.Error) {
	keys := r.ConfigurationKeys
	if len(keys) == 0 {
		keys = nil
	}
	cfg := c.s.topics.Config()
	switch r.ResourceType {
	case resourceTopic:
		if err := topics.CheckName(r.ResourceName); err != nil {
			return nil, err
		}
		t := c.s.topics.ByName(r.ResourceName)
		if t == nil {
			return nil, &topics.Error{Code: api.ErrUnknownTopicOrPartition}
		}
		return cfg.DescribeTopic(t.Overrides(), keys), nil
	case resourceBroker:
		if r.ResourceName == "" {
			return cfg.DescribeDefaults(keys), nil
		}
		if err := c.checkBrokerName(r.ResourceName, " or empty string"); err != nil {
			return nil, err
		}
		return cfg.DescribeBroker(keys), nil
	case resourceBrokerLogger:
		if err := c.checkBrokerName(r.ResourceName, ""); err != nil {
			return nil, err
		}
		return c.s.logger.describe(keys), nil
	}
	return nil, &topics.Error{Code: api.ErrInvalidRequest, Message: api.ErrInvalidRequest.Message()}
}

// checkBrokerName accepts the id of this broker.
func (c *call) checkBrokerName(name, or string) *topics.Error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return &topics.Error{Code: api.ErrInvalidRequest, Message: "Broker id must be an integer, but it is: " + name}
	}
	if int32(id) != c.s.nodeID {
		return &topics.Error{Code: api.ErrInvalidRequest, Message: fmt.Sprintf("Unexpected broker id, expected %d%s, but received %s", c.s.nodeID, or, name)}
	}
	return nil
}

// describeEntry writes one entry into the answer. is_default (v0 only) stays false, as Apache 3.7 sends it.
func describeEntry(o *api.DescribeConfigsResponseDescribeConfigsResourceResult, e *config.Entry, q *api.DescribeConfigsRequest) {
	o.Name, o.Value = e.Name, wire.NullString{String: e.Value, Valid: !e.Null}
	o.ReadOnly, o.IsSensitive, o.ConfigSource, o.ConfigType = e.ReadOnly, e.Sensitive, int8(e.Source), int8(e.Type)
	o.Documentation = wire.NullString{}
	if q.IncludeSynonyms {
		for _, s := range e.Synonyms {
			n := api.Next(&o.Synonyms)
			n.Name, n.Value, n.Source = s.Name, wire.NullString{String: s.Value, Valid: !s.Null}, int8(s.Source)
		}
	}
	if q.IncludeDocumentation {
		o.Documentation = wire.Some(e.Doc)
	}
}
