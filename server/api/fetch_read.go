package api

import (
	"errors"

	"kaas/codec/api"
	"kaas/engine"
)

// debugReplica is the replica id of a consumer that reads like a follower, for looking at a log. Other ids of 0 and above are followers,
// and this broker has none.
const debugReplica = -2

// read reads every partition within the limits of the request. now says that the answer must not wait: a partition failed on
// reading, or there is nothing to wait for.
func (op *fetchOp) read() (bytes int, now bool) {
	op.cold = false
	limit := op.maxBytes
	wholeFirst, waiting := true, false
	for i := range op.parts {
		p := &op.parts[i]
		p.code, p.slice, p.diverging = p.preset, engine.Slice{}, false
		if p.code != api.ErrNone {
			continue // unknown partitions neither end a long poll nor make one (regression 38)
		}
		waiting = true
		op.readPart(p, limit, wholeFirst)
		if p.code != api.ErrNone || p.diverging {
			now = true
			continue
		}
		if p.slice.Len > 0 {
			wholeFirst = false
			bytes += p.slice.Len
			limit = max(0, limit-p.slice.Len)
		}
	}
	return bytes, now || !waiting
}

// readPart reads one partition.
func (op *fetchOp) readPart(p *fetchPart, limit int, wholeFirst bool) {
	log := p.p.Log
	if p.p.Gone() {
		p.code = api.ErrUnknownTopicOrPartition
		return
	}
	p.offsets = log.Offsets()
	if op.replicaID() >= 0 {
		p.code = api.ErrNotLeaderOrFollower
		return
	}
	if p.code = checkLeaderEpoch(p.leaderEpoch, p.offsets.LeaderEpoch); p.code != api.ErrNone {
		return
	}
	if p.lastEpoch >= 0 && op.diverges(p) {
		return
	}
	iso := engine.ReadUncommitted
	if op.req.IsolationLevel == 1 {
		iso = engine.ReadCommitted
	}
	if op.replicaID() == debugReplica {
		iso = engine.ReadUncommitted
	}
	if p.maxBytes < 0 || op.req.MaxBytes < 0 {
		p.code = api.ErrUnknownServerError // Apache's own answer to a negative limit
		return
	}
	var slice engine.Slice
	var err error
	if limit = min(limit, int(p.maxBytes)); op.waits {
		slice, err = log.Read(p.offset, limit, wholeFirst, iso)
	} else {
		slice, err = log.ReadCached(p.offset, limit, wholeFirst, iso)
	}
	if err == engine.ErrCold {
		op.cold = true
		return
	}
	if err != nil {
		p.code = readError(err)
		return
	}
	p.slice = slice
}

// diverges compares the fetcher's last epoch with the leader's history (KIP-595). It reports whether the partition is settled by that.
func (op *fetchOp) diverges(p *fetchPart) bool {
	epoch, end := p.p.Log.EndOffsetForEpoch(p.lastEpoch)
	if epoch < 0 || end < 0 {
		p.code = api.ErrOffsetOutOfRange
		return true
	}
	if epoch < p.lastEpoch || end < p.offset {
		p.diverging, p.divEpoch, p.divEnd = true, epoch, end
		return true
	}
	return false
}

// replicaID is the replica that a request says it comes from; -1 for consumers.
func (op *fetchOp) replicaID() int32 {
	if op.head.Version >= 15 {
		return op.req.ReplicaState.ReplicaId
	}
	return op.req.ReplicaId
}

// checkLeaderEpoch compares the epoch a client knows (-1: none) with the leader's (regression 43).
func checkLeaderEpoch(client, leader int32) api.ErrorCode {
	switch {
	case client < 0 || client == leader:
		return api.ErrNone
	case client < leader:
		return api.ErrFencedLeaderEpoch
	default:
		return api.ErrUnknownLeaderEpoch
	}
}

// readError maps what the engine says of a read to Kafka's codes.
func readError(err error) api.ErrorCode {
	switch {
	case errors.Is(err, engine.ErrOffsetOutOfRange):
		return api.ErrOffsetOutOfRange
	case errors.Is(err, engine.ErrDeleted):
		return api.ErrUnknownTopicOrPartition
	default:
		return api.ErrKafkaStorageError
	}
}

// A slice within recentBytes of the end of its segment, that was appended to no longer than recentMs ago, is in the page cache, and netio
// need not look for it.
const (
	recentBytes = 8 << 20
	recentMs    = 30_000
)

// old tells whether a slice may not be in the page cache.
func (op *fetchOp) old(s *engine.Slice) bool {
	return s.Lag > recentBytes || s.Lag > 0 && op.ls.loop.Time().UnixMilli()-s.AppendedMs > recentMs
}

// dropSlices gives back what was read and is not sent.
func (op *fetchOp) dropSlices() {
	for i := range op.parts {
		p := &op.parts[i]
		if p.slice.Ref != nil {
			p.slice.Ref.Release()
		}
		p.slice = engine.Slice{}
	}
}
