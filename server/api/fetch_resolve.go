package api

import (
	"kaas/codec/api"
	"kaas/server/fetchsession"
	"kaas/server/topics"
)

// byIDFrom is the first version of Fetch that names topics by id (KIP-516).
const byIDFrom = 13

// resolve works out what to read: the partitions named by the request, or those of its session. A code other than none is the answer
// to the whole request.
func (op *fetchOp) resolve() api.ErrorCode {
	cache := op.s.sessions
	id, epoch := op.req.SessionId, op.req.SessionEpoch
	if epoch == fetchsession.FinalEpoch || epoch == fetchsession.InitialEpoch {
		if id != 0 {
			cache.Remove(id)
		}
		op.listRequested()
		if epoch == fetchsession.InitialEpoch {
			op.begin(cache)
		}
		return api.ErrNone
	}
	session, problem := cache.Use(id, epoch, op.byID(), op.s.now())
	if problem != fetchsession.OK {
		return sessionProblem(problem)
	}
	defer session.Unlock()
	op.update(session)
	if session.Len() == 0 {
		cache.Remove(id)
		op.listRequested()
		return api.ErrNone
	}
	session.Advance()
	op.session, op.full = session, false
	for e := session.First(); e != nil; e = e.Next() {
		op.addFromSession(e.Value.(*fetchsession.Partition))
	}
	return api.ErrNone
}

// byID tells whether the request names topics by id.
func (op *fetchOp) byID() bool { return op.head.Version >= byIDFrom }

// begin makes a session of a full fetch, if the cache has room for one.
func (op *fetchOp) begin(cache *fetchsession.Cache) {
	s := cache.Create(op.s.now(), op.byID(), len(op.parts))
	if s == nil {
		return
	}
	s.Lock()
	defer s.Unlock()
	op.session = s
	for i := range op.parts {
		p := &op.parts[i]
		p.told = s.Set(sessionPartition(p))
	}
}

// sessionPartition is what a session keeps of a partition: names of its own, since the request's memory is reused.
func sessionPartition(p *fetchPart) fetchsession.Partition {
	k := p.Key
	if p.p == nil {
		k.Topic = cloneString(k.Topic)
	} else if k.Topic != "" {
		k.Topic = p.p.Topic.Name
	}
	sp := fetchsession.Partition{Key: k, FetchOffset: p.offset, MaxBytes: p.maxBytes, LeaderEpoch: p.leaderEpoch, LastFetchedEpoch: p.lastEpoch}
	if p.p != nil {
		sp.Handle = p.p
	}
	return sp
}

// update brings a session up to date with what an incremental fetch names and forgets.
func (op *fetchOp) update(s *fetchsession.Session) {
	op.listRequested()
	for i := range op.parts {
		s.Set(sessionPartition(&op.parts[i]))
	}
	op.parts = op.parts[:0]
	for i := range op.req.ForgottenTopicsData {
		t := &op.req.ForgottenTopicsData[i]
		k := fetchsession.Key{Topic: t.Topic, TopicID: t.TopicId}
		if op.byID() {
			k.Topic = ""
		}
		for _, index := range t.Partitions {
			k.Partition = index
			s.Forget(k)
		}
	}
}

// listRequested lists the partitions that the request names.
func (op *fetchOp) listRequested() {
	op.parts = op.parts[:0]
	for i := range op.req.Topics {
		t := &op.req.Topics[i]
		var topic *topics.Topic
		if op.byID() {
			topic = op.s.topics.ByID(t.TopicId)
		} else {
			topic = op.s.topics.ByName(t.Topic)
		}
		for j := range t.Partitions {
			q := &t.Partitions[j]
			p := op.newPart()
			p.Partition, p.offset, p.maxBytes = q.Partition, q.FetchOffset, q.PartitionMaxBytes
			p.leaderEpoch, p.lastEpoch = q.CurrentLeaderEpoch, q.LastFetchedEpoch
			if op.byID() {
				p.TopicID = t.TopicId
			} else {
				p.Topic = t.Topic
			}
			op.place(p, topic)
		}
	}
}

// newPart adds a partition.
func (op *fetchOp) newPart() *fetchPart {
	op.parts = append(op.parts, fetchPart{})
	return &op.parts[len(op.parts)-1]
}

// place finds the partition of a topic; what does not exist is answered without being read.
func (op *fetchOp) place(p *fetchPart, topic *topics.Topic) {
	if topic == nil {
		p.name = p.Topic
		p.preset = api.ErrUnknownTopicOrPartition
		if op.byID() {
			p.preset = api.ErrUnknownTopicId
		}
		return
	}
	if !op.byID() {
		p.name = topic.Name
	}
	if p.p = topic.Partition(p.Partition); p.p == nil {
		p.preset = api.ErrUnknownTopicOrPartition
	}
}

// addFromSession lists a partition of the session. One that could not be found, or was deleted, is looked up again each time.
func (op *fetchOp) addFromSession(sp *fetchsession.Partition) {
	p := op.newPart()
	p.Key, p.told = sp.Key, sp
	p.offset, p.maxBytes, p.leaderEpoch, p.lastEpoch = sp.FetchOffset, sp.MaxBytes, sp.LeaderEpoch, sp.LastFetchedEpoch
	if known, ok := sp.Handle.(*topics.Partition); ok {
		if !known.Gone() {
			p.p = known
			if !op.byID() {
				p.name = sp.Topic
			}
			return
		}
		if op.byID() { // the name was known once, so the partition is unknown, not the id
			p.preset = api.ErrUnknownTopicOrPartition
			return
		}
	}
	if op.byID() {
		op.place(p, op.s.topics.ByID(sp.TopicID))
	} else {
		op.place(p, op.s.topics.ByName(sp.Topic))
	}
	if p.p != nil {
		sp.Handle = p.p
	}
}
