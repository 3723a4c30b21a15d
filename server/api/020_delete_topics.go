package api

import (
	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/topics"
)

// DeleteTopics, key 20, v0-v6. v4 flexible; v5 error message; v6 topics by id.
//
// The topic is gone from every connection, durably, before the answer; its files are renamed at once and removed later.
//
// Deviation: timeout_ms is not looked at, as in CreateTopics.
func deleteTopics(c *call, q *api.DeleteTopicsRequest, p *api.DeleteTopicsResponse) {
	if !c.s.topics.Config().DeleteTopics {
		c.refuseDeletes(q, p)
		return
	}
	d := deletion{c: c, p: p, named: make(map[string]int)}
	for _, name := range q.TopicNames {
		d.byName(name)
	}
	for i := range q.Topics {
		t := &q.Topics[i]
		zero := t.TopicId == wire.UUID{}
		switch {
		case t.Name.Valid && !zero:
			d.refuse(t.Name, t.TopicId, api.ErrInvalidRequest, "You may not specify both topic name and topic id.")
		case t.Name.Valid:
			d.byName(t.Name.String)
		case zero:
			d.refuse(t.Name, t.TopicId, api.ErrInvalidRequest, "Neither topic name nor id were specified.")
		default:
			d.byID(t.TopicId)
		}
	}
	d.run()
}

// refuseDeletes answers when delete.topic.enable is false: 73, or 42 for clients that do not know that code.
func (c *call) refuseDeletes(q *api.DeleteTopicsRequest, p *api.DeleteTopicsResponse) {
	code := api.ErrTopicDeletionDisabled
	if c.version() < 3 {
		code = api.ErrInvalidRequest
	}
	d := deletion{c: c, p: p}
	for _, name := range q.TopicNames {
		d.refuse(wire.Some(name), wire.UUID{}, code, code.Message())
	}
	for i := range q.Topics {
		d.refuse(q.Topics[i].Name, q.Topics[i].TopicId, code, code.Message())
	}
}

// deletion gathers the topics of a request; one that is named twice, by name or by id, is refused once and kept.
type deletion struct {
	c      *call
	p      *api.DeleteTopicsResponse
	topics []*topics.Topic
	named  map[string]int
}

// byName and byID find a topic.
func (d *deletion) byName(name string) {
	t := d.c.s.topics.ByName(name)
	if t == nil {
		if d.named[name]++; d.named[name] == 1 {
			d.refuse(wire.Some(name), wire.UUID{}, api.ErrUnknownTopicOrPartition, "This server does not host this topic-partition.")
		}
		return
	}
	d.add(t)
}

func (d *deletion) byID(id wire.UUID) {
	t := d.c.s.topics.ByID(id)
	if t == nil {
		d.refuse(wire.NullString{}, id, api.ErrUnknownTopicId, "This server does not host this topic ID.")
		return
	}
	d.add(t)
}

func (d *deletion) add(t *topics.Topic) {
	if d.named[t.Name]++; d.named[t.Name] == 1 {
		d.topics = append(d.topics, t)
	}
}

// refuse answers with an error.
func (d *deletion) refuse(name wire.NullString, id wire.UUID, code api.ErrorCode, why string) {
	o := api.Next(&d.p.Responses)
	if d.c.version() < 6 { // not nullable before
		name.Valid = true
	}
	o.Name, o.TopicId, o.ErrorCode, o.ErrorMessage = name, id, code, wire.Some(why)
}

// run deletes what was gathered.
func (d *deletion) run() {
	for _, t := range d.topics {
		if d.named[t.Name] > 1 {
			d.refuse(wire.Some(t.Name), t.ID, api.ErrInvalidRequest, "The topic was named more than once, by name or by id.")
			continue
		}
		if err := d.c.s.topics.Delete(t, d.c.admit(5)); err != nil {
			d.refuse(wire.Some(t.Name), t.ID, err.Code, err.Message)
			continue
		}
		o := api.Next(&d.p.Responses)
		o.Name, o.TopicId = wire.Some(t.Name), t.ID
	}
}
