package simulate

import (
	"slices"
	"testing"

	"kaas/codec/parsley"
)

// breakage is a host or a node that is wrong in one place.
type breakage string

const (
	sound                 breakage = ""
	gateless              breakage = "the gate sees no clock"
	untagged              breakage = "the node is not told who sent a record"
	stampsNothing         breakage = "stamps claim nothing"
	stampsOwnInputs       breakage = "stamps claim only what the node consumes"
	stampsNoSends         breakage = "stamps do not claim what the node sent"
	seedFromNothing       breakage = "a start takes no end of a sink"
	seedFromStable        breakage = "a start takes the last stable offset of a sink"
	formerSinksForgotten  breakage = "former sinks are taken for destroyed"
	truncatedTooEarly     breakage = "truncation up to the end of a log"
	custodyTooLow         breakage = "custody upgraded to less than the high watermark"
	positionsWithheld     breakage = "positions are not reported"
	positionsTooFar       breakage = "positions are reported before the records are fed"
	storeCommittedOnCrash breakage = "a crash commits the store alone"
	parityNode            breakage = "the replay guard sees only the frontier"
	sequencesAgain        breakage = "a lost store begins its numbers again"
	logsUnchecked         breakage = "nobody looks whether retention went too far"
	neverResumes          breakage = "what is deliverable at the start is not fetched"
	neverLooks            breakage = "nobody looks back"
	readsUncommitted      breakage = "aborted records are fed"
	compactionUnnoticed   breakage = "a look back takes a compacted log for one that is not"
	parityMode            breakage = "parity" // no breakage: the node of parity mode, with hosts that ask nothing of it that it cannot do
)

// damage does to a stamp what a broken node would.
func (w *world) damage(h *host, dest *partition, s *parsley.Stamp) {
	consumed := func(c parsley.Channel) bool {
		return slices.ContainsFunc(h.feeds, func(f feed) bool { return f.log.id == c })
	}
	sink := func(c parsley.Channel) bool {
		return slices.ContainsFunc(h.sinks, func(name string) bool { return w.topics[name].id == c.Topic })
	}
	switch w.broken {
	case stampsNothing:
		s.Clock.Reset()
	case stampsOwnInputs:
		s.Clock.FilterOffsets(func(e parsley.OffsetClaim) bool { return consumed(e.Key) || sink(e.Key) })
		s.Clock.FilterSequences(func(e parsley.SequenceClaim) bool { return e.Key.Sender == h.sender })
	case stampsNoSends:
		s.Clock.FilterOffsets(func(e parsley.OffsetClaim) bool { return !sink(e.Key) || e.Key == dest.id })
		s.Clock.FilterSequences(func(e parsley.SequenceClaim) bool { return e.Key.Sender != h.sender })
	}
}

// TestOracle: each broken subject fails in the way that it must, in some seed of a scenario that is sound without it, and in
// no other way.
func TestOracle(t *testing.T) {
	for _, c := range []struct {
		broken   breakage
		scenario string
		kinds    []string // any of these, and none else
	}{
		{gateless, "shared-input diamond", []string{causalOrder}},
		{gateless, "blind hop", []string{causalOrder}},
		{untagged, "joiner from the start", []string{incomplete}},
		{stampsNothing, "shared-input diamond", []string{causalOrder}},
		{stampsOwnInputs, "blind hop", []string{causalOrder}},
		{stampsNoSends, "multi-partition sink", []string{causalOrder}},
		{seedFromNothing, "restart claims prior sends", []string{causalOrder}},
		{seedFromStable, "seed above an open transaction", []string{causalOrder}},
		{formerSinksForgotten, "former sink", []string{causalOrder}},
		{truncatedTooEarly, "retention under way", []string{causalOrder}},
		{custodyTooLow, "retention under way", []string{causalOrder}},
		{positionsWithheld, "quiet sink", []string{incomplete}},
		{positionsTooFar, "filter and trailing markers", []string{incomplete, causalOrder, falseClaim}},
		{storeCommittedOnCrash, "crash chain", []string{incomplete, causalOrder, twice, falseClaim}},
		{parityNode, "rewinds", []string{twice, channelFIFO}},
		{sequencesAgain, "lost store", []string{causalOrder, channelFIFO}},
		{logsUnchecked, "retention too far", []string{incomplete, causalOrder}},
		{neverResumes, "dropped input frees", []string{incomplete}},
		{neverLooks, "late joiner", []string{incomplete}},
		{readsUncommitted, "aborted", []string{unreadable}},
		{compactionUnnoticed, "look back on a compacted log", []string{causalOrder}},
	} {
		t.Run(string(c.broken)+" in "+c.scenario, func(t *testing.T) {
			t.Parallel()
			s := scenarioNamed(t, c.scenario)
			found := 0
			for seed := range uint64(40) {
				_, v := attempt(s, newDice(seed), c.broken, nil)
				if v == nil {
					continue
				}
				if found++; !slices.Contains(c.kinds, v.kind) {
					t.Errorf("seed %d: %s: %s", seed, v.kind, v.text)
				}
			}
			if found == 0 {
				t.Errorf("nothing found in 40 seeds")
			}
		})
	}
}
