package api

import (
	"slices"
	"strings"
	"sync"
	"time"

	"kaas/codec/api"
	"kaas/server/coordinator"
	"kaas/server/group"
)

// ListGroups, key 16, v0-v4. v1 throttle time; v3 flexible; v4 states, as a filter and in the answer.
//
// While some groups are still being loaded the answer has those that are, and 14.

// serveListGroups asks every shard.
func serveListGroups(c *call) {
	c = c.detach()
	q := new(api.ListGroupsRequest)
	if !c.decode(q) {
		return
	}
	l := &groupList{c: c}
	l.p.Groups = []api.ListGroupsResponseListedGroup{}
	l.asked(c.s.groups.Ask(c.guarded(func(s *group.Shard, _ time.Time) coordinator.Outcome {
		list := s.List(q.StatesFilter)
		return coordinator.Outcome{Done: func(err error) { l.add(list, err) }}
	}), func(err error) { l.add(nil, err) }))
}

// groupList gathers what the shards list.
type groupList struct {
	c *call

	mu   sync.Mutex // guards what follows
	left int        // shards that have not answered; below what it is while the asking goes on
	p    api.ListGroupsResponse
}

// asked says how many shards there are.
func (l *groupList) asked(shards int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left += shards
	l.finish()
}

// add takes a shard's list, or why there is none: of a shard that is not there nothing is said, as of one of another broker's.
func (l *groupList) add(list []api.ListGroupsResponseListedGroup, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left--
	if code := group.Refusal(api.KeyListGroups, err); code == api.ErrCoordinatorLoadInProgress {
		l.p.ErrorCode = code
	}
	l.p.Groups = append(l.p.Groups, list...)
	l.finish()
}

// finish answers when every shard has.
func (l *groupList) finish() {
	if l.left != 0 {
		return
	}
	slices.SortFunc(l.p.Groups, func(a, b api.ListGroupsResponseListedGroup) int { return strings.Compare(a.GroupId, b.GroupId) })
	l.c.answer(&l.p)
}
