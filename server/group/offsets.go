package group

import (
	"slices"
	"time"
	"unique"

	"kaas/codec/api"
	"kaas/codec/wire"
	"kaas/server/coordinator"
)

// offset is what a group committed for a partition.
type offset struct {
	at       int64 // offset of its record in the shard's log: of two, the later one counts
	offset   int64
	epoch    int32 // leader epoch of the last record read, -1 unknown
	metadata string
	commit   int64 // ms, when it was committed
	expire   int64 // ms, -1: by the broker's retention
}

// link remembers that a group has pending offsets of a producer.
func (s *Shard) link(producer int64, g *group) {
	in := s.txns[producer]
	if in == nil {
		in = make(map[*group]struct{}, 1)
		s.txns[producer] = in
	}
	in[g] = struct{}{}
}

func (s *Shard) unlink(producer int64, g *group) {
	in := s.txns[producer]
	delete(in, g)
	if len(in) == 0 {
		delete(s.txns, producer)
	}
}

// writes counts a commit that goes to the log, wrote one that is there or will not be.
func (g *group) writes(k topicPartition) {
	if g.writing == nil {
		g.writing = make(map[topicPartition]int)
	}
	g.writing[k]++
}

func (g *group) wrote(k topicPartition) {
	switch n := g.writing[k]; n {
	case 0:
	case 1:
		delete(g.writing, k)
	default:
		g.writing[k] = n - 1
	}
}

// unstable says whether the offset of a partition may change without another commit (KIP-447).
func (g *group) unstable(k topicPartition) bool {
	if g.writing[k] > 0 {
		return true
	}
	for _, p := range g.pending {
		if p[k] != nil {
			return true
		}
	}
	return false
}

// tooLong says whether metadata has more than limit units of UTF-16, which is how Apache counts it.
func tooLong(metadata string, limit int) bool {
	if len(metadata) <= limit {
		return false
	}
	n := 0
	for _, r := range metadata {
		if n++; r > 0xFFFF {
			n++
		}
	}
	return n > limit
}

// mayCommit tells who may commit for a group: while it is empty whoever brings no generation, whatever else he says of himself;
// otherwise its members in the present generation, and a transaction also without member and generation, as its older versions do.
func (s *Shard) mayCommit(g *group, generation int32, memberID string, instance wire.NullString, txn bool) (*member, api.ErrorCode) {
	switch {
	case g == nil && generation < 0:
		return nil, api.ErrNone
	case g == nil && txn:
		return nil, api.ErrUnknownMemberId
	case g == nil:
		return nil, api.ErrIllegalGeneration
	case g.dead:
		return nil, api.ErrCoordinatorNotAvailable
	case generation < 0 && g.state() == empty:
		return nil, api.ErrNone
	case g.consumer != nil:
		code := g.consumer.check(memberID, generation)
		if txn && code == api.ErrStaleMemberEpoch {
			code = api.ErrIllegalGeneration
		}
		return nil, code
	case generation >= 0 || memberID != "" || instance.Valid:
		m, code := g.check(memberID, instance.String, instance.Valid)
		if code == api.ErrNone && generation != g.generation() {
			code = api.ErrIllegalGeneration
		}
		return m, code
	case !txn:
		return nil, api.ErrUnknownMemberId
	}
	return nil, api.ErrNone
}

// commits gathers the records of one commit.
type commits struct {
	s     *Shard
	group string
	g     *group // nil until the first record
	arena arena
	keys  []topicPartition
	first [1]topicPartition // most commits are of one partition: memory of keys then
}

// answeredCommits are commits with their answer, as one piece of memory for the usual case of one topic.
type answeredCommits struct {
	commits
	answer api.OffsetCommitResponse
	first  [1]api.OffsetCommitResponseOffsetCommitResponseTopic
}

// answerTo begins the answer to commits of so many topics.
func (w *answeredCommits) answerTo(topics int) *api.OffsetCommitResponse {
	if topics == len(w.first) {
		w.answer.Topics = w.first[:]
	} else {
		w.answer.Topics = make([]api.OffsetCommitResponseOffsetCommitResponseTopic, topics)
	}
	return &w.answer
}

// add takes a partition's offset, or says why not.
func (w *commits) add(k topicPartition, o *offset) api.ErrorCode {
	switch {
	case int(k.partition) >= w.s.cfg.Partitions(k.topic.Value()) || k.partition < 0:
		return api.ErrUnknownTopicOrPartition
	case tooLong(o.metadata, w.s.cfg.MaxMetadata):
		return api.ErrOffsetMetadataTooLarge
	}
	if w.g == nil {
		w.g, w.keys = w.s.ensure(w.group), w.first[:0]
	}
	w.g.writes(k)
	w.keys = append(w.keys, k)
	w.s.write(w.arena.offset(w.g.id, k, o))
	return api.ErrNone
}

// failed takes back what was counted for a commit that is not in the log.
func (w *commits) failed() {
	if w.g == nil {
		return
	}
	for _, k := range w.keys {
		w.g.wrote(k)
	}
	w.s.tidy(w.g)
}

// Commit serves OffsetCommit, key 8, v1 and later (v0 went to ZooKeeper: 35). v1 may bring the time of the commit, v2-v4 a retention.
func (s *Shard) Commit(q *api.OffsetCommitRequest, now time.Time, reply func(*api.OffsetCommitResponse)) coordinator.Outcome {
	g := s.groups[q.GroupId]
	m, code := s.mayCommit(g, q.GenerationIdOrMemberEpoch, q.MemberId, q.GroupInstanceId, false)
	if code == api.ErrNone && m != nil {
		if st := g.classic.state; st == completingRebalance {
			code = api.ErrRebalanceInProgress
		} else {
			s.touch(g.classic, m, m.session, now)
		}
	}
	w := &answeredCommits{commits: commits{s: s, group: q.GroupId}}
	p := w.answerTo(len(q.Topics))
	ms := now.UnixMilli()
	for i := range q.Topics {
		t := &q.Topics[i]
		topic := unique.Make(t.Name)
		all := make([]api.OffsetCommitResponseOffsetCommitResponsePartition, len(t.Partitions))
		for j := range t.Partitions {
			c := &t.Partitions[j]
			o := offset{offset: c.CommittedOffset, epoch: c.CommittedLeaderEpoch, metadata: c.CommittedMetadata.String, commit: ms, expire: -1}
			if c.CommitTimestamp != -1 {
				o.commit = c.CommitTimestamp
			}
			if q.RetentionTimeMs != -1 {
				o.expire = ms + q.RetentionTimeMs
			}
			all[j].PartitionIndex = c.PartitionIndex
			all[j].ErrorCode = s.commitOne(&w.commits, code, topicPartition{topic, c.PartitionIndex}, &o)
		}
		p.Topics[i] = api.OffsetCommitResponseOffsetCommitResponseTopic{Name: topic.Value(), Partitions: all}
	}
	s.after(func(err error) {
		if err != nil {
			w.failed()
			for i := range p.Topics {
				for j := range p.Topics[i].Partitions {
					fail(&p.Topics[i].Partitions[j].ErrorCode, Refusal(api.KeyOffsetCommit, err))
				}
			}
		}
		reply(p)
	})
	return s.outcome()
}

// commitOne is one partition of a commit whose group answers code.
func (s *Shard) commitOne(w *commits, code api.ErrorCode, k topicPartition, o *offset) api.ErrorCode {
	if code != api.ErrNone && k.partition >= 0 && int(k.partition) < s.cfg.Partitions(k.topic.Value()) {
		return code
	}
	return w.add(k, o)
}

// fail replaces success by an error.
func fail(code *api.ErrorCode, by api.ErrorCode) {
	if *code == api.ErrNone {
		*code = by
	}
}

// TxnCommit serves TxnOffsetCommit, key 28: the offsets are pending until the transaction's marker. That the producer's transaction
// includes the group (48) is the caller's business.
func (s *Shard) TxnCommit(q *api.TxnOffsetCommitRequest, now time.Time, reply func(*api.TxnOffsetCommitResponse)) coordinator.Outcome {
	_, code := s.mayCommit(s.groups[q.GroupId], q.GenerationId, q.MemberId, q.GroupInstanceId, true)
	if q.GroupId == "" {
		code = api.ErrInvalidGroupId
	}
	w := &commits{s: s, group: q.GroupId}
	p := &api.TxnOffsetCommitResponse{Topics: make([]api.TxnOffsetCommitResponseTxnOffsetCommitResponseTopic, len(q.Topics))}
	for i := range q.Topics {
		t := &q.Topics[i]
		topic := unique.Make(t.Name)
		all := make([]api.TxnOffsetCommitResponseTxnOffsetCommitResponsePartition, len(t.Partitions))
		for j := range t.Partitions {
			c := &t.Partitions[j]
			all[j].PartitionIndex = c.PartitionIndex
			all[j].ErrorCode = s.commitOne(w, code, topicPartition{topic, c.PartitionIndex}, &offset{
				offset: c.CommittedOffset, epoch: c.CommittedLeaderEpoch, metadata: c.CommittedMetadata.String, commit: now.UnixMilli(), expire: -1})
		}
		p.Topics[i] = api.TxnOffsetCommitResponseTxnOffsetCommitResponseTopic{Name: topic.Value(), Partitions: all}
	}
	s.after(func(err error) {
		if err != nil {
			w.failed()
			for i := range p.Topics {
				for j := range p.Topics[i].Partitions {
					fail(&p.Topics[i].Partitions[j].ErrorCode, Refusal(api.KeyTxnOffsetCommit, err))
				}
			}
		}
		reply(p)
	})
	o := s.outcome()
	if len(o.Write.Entries) > 0 {
		o.Write.Txn = &coordinator.Producer{ID: q.ProducerId, Epoch: q.ProducerEpoch}
	}
	return o
}

// Fetch serves one group of OffsetFetch, key 9, in the form of v8 and later; nil topics ask for all that is committed. With requireStable
// an offset that an open transaction may change is answered 88 (KIP-447).
func (s *Shard) Fetch(q *api.OffsetFetchRequestOffsetFetchRequestGroup, requireStable bool) api.OffsetFetchResponseOffsetFetchResponseGroup {
	p := api.OffsetFetchResponseOffsetFetchResponseGroup{GroupId: cloned(q.GroupId)}
	g := s.groups[q.GroupId]
	if g != nil && g.dead {
		g = nil
	}
	if g != nil {
		if p.ErrorCode = g.mayFetch(q.MemberId, q.MemberEpoch); p.ErrorCode != api.ErrNone {
			return p
		}
	}
	if q.Topics == nil {
		if g != nil {
			p.Topics = g.all(requireStable)
		}
		return p
	}
	p.Topics = make([]api.OffsetFetchResponseOffsetFetchResponseTopics, len(q.Topics))
	for i := range q.Topics {
		t := &q.Topics[i]
		topic := unique.Make(t.Name)
		all := make([]api.OffsetFetchResponseOffsetFetchResponsePartitions, len(t.PartitionIndexes))
		for j, index := range t.PartitionIndexes {
			all[j] = g.fetched(topicPartition{topic, index}, requireStable)
		}
		p.Topics[i] = api.OffsetFetchResponseOffsetFetchResponseTopics{Name: topic.Value(), Partitions: all}
	}
	return p
}

// fetched is what OffsetFetch says of a partition. g may be nil: nothing is committed.
func (g *group) fetched(k topicPartition, requireStable bool) api.OffsetFetchResponseOffsetFetchResponsePartitions {
	p := api.OffsetFetchResponseOffsetFetchResponsePartitions{
		PartitionIndex: k.partition, CommittedOffset: -1, CommittedLeaderEpoch: -1, Metadata: wire.Some(""),
	}
	if g == nil {
		return p
	}
	if requireStable && g.unstable(k) {
		p.ErrorCode = api.ErrUnstableOffsetCommit
	} else if o := g.offsets[k]; o != nil {
		p.CommittedOffset, p.CommittedLeaderEpoch, p.Metadata = o.offset, o.epoch, wire.Some(o.metadata)
	}
	return p
}

// all is everything that is committed, by topic and partition.
func (g *group) all(requireStable bool) []api.OffsetFetchResponseOffsetFetchResponseTopics {
	keys := make([]topicPartition, 0, len(g.offsets))
	for k := range g.offsets {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, byTopic)
	var topics []api.OffsetFetchResponseOffsetFetchResponseTopics
	for i, k := range keys {
		if i == 0 || k.topic != keys[i-1].topic {
			topics = append(topics, api.OffsetFetchResponseOffsetFetchResponseTopics{Name: k.topic.Value()})
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, g.fetched(k, requireStable))
	}
	return topics
}
