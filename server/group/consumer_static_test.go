package group

import (
	"slices"
	"testing"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// staticBeat sends a heartbeat of the static member with an instance id, which subscribes to topics x and y, and wants no error.
func (f *consumerFake) staticBeat(instance, id string, epoch int32, wish string, has ...wire.UUID) *api.ConsumerGroupHeartbeatResponse {
	f.t.Helper()
	q := new(api.ConsumerGroupHeartbeatRequest)
	q.Default()
	q.GroupId, q.InstanceId, q.MemberId, q.MemberEpoch = "g", wire.Some(instance), id, epoch
	q.TopicPartitions = []api.ConsumerGroupHeartbeatRequestTopicPartitions{}
	for _, topic := range has {
		q.TopicPartitions = append(q.TopicPartitions, api.ConsumerGroupHeartbeatRequestTopicPartitions{TopicId: topic, Partitions: []int32{0, 1}})
	}
	if epoch == joinEpoch {
		q.RebalanceTimeoutMs, q.SubscribedTopicNames = 1000, []string{"x", "y"}
	}
	if wish != "" {
		q.ServerAssignor = wire.Some(wish)
	}
	var p *api.ConsumerGroupHeartbeatResponse
	f.run(f.s.ConsumerHeartbeat(q, Client{ID: "c", Host: "/127.0.0.1"}, f.now, func(a *api.ConsumerGroupHeartbeatResponse) { p = a }))
	if p.ErrorCode != api.ErrNone {
		f.t.Fatalf("%s in epoch %d: %v %s", instance, epoch, p.ErrorCode, p.ErrorMessage.String)
	}
	return p
}

// topicsOf are the topics that an answer says a member has.
func topicsOf(p *api.ConsumerGroupHeartbeatResponse) (list []wire.UUID) {
	for _, t := range p.Assignment.TopicPartitions {
		list = append(list, t.TopicId)
	}
	return list
}

// TestStaticMemberWithAnotherWish: one that takes the place of another has its target, whichever assignor it asks for: the others, who do not look
// for a new target within an epoch, keep theirs.
func TestStaticMemberWithAnotherWish(t *testing.T) {
	f := newConsumerFake(t)
	x, y := wire.UUID{1}, wire.UUID{2}
	f.topic("x", x, 2)
	f.topic("y", y, 2)
	one := f.staticBeat("one", "", joinEpoch, "").MemberId.String
	two := f.staticBeat("two", "", joinEpoch, "").MemberId.String
	f.staticBeat("one", one, 1, "", x, y)
	f.staticBeat("one", one, 1, "", x)
	if got := topicsOf(f.staticBeat("two", two, 2, "")); !slices.Equal(got, []wire.UUID{y}) {
		t.Fatalf("two has %v", got)
	}
	f.staticBeat("two", two, leftForNowEpoch, "")
	p := f.staticBeat("two", "", joinEpoch, "range") // which would give each of them one partition of each topic
	if p.MemberEpoch != 2 || !slices.Equal(topicsOf(p), []wire.UUID{y}) {
		t.Errorf("two is back in epoch %d with %v", p.MemberEpoch, topicsOf(p))
	}
	if d := f.s.ConsumerDescribe("g"); d.GroupState != "stable" || d.GroupEpoch != 2 {
		t.Errorf("described %+v", d)
	}
}

// TestStaticMemberHasLess: one that comes back when the group has given its partitions to others has given them up.
func TestStaticMemberHasLess(t *testing.T) {
	f := newConsumerFake(t)
	x, y := wire.UUID{1}, wire.UUID{2}
	f.topic("x", x, 2)
	f.topic("y", y, 2)
	one := f.staticBeat("one", "", joinEpoch, "").MemberId.String
	f.staticBeat("one", one, leftForNowEpoch, "")
	two := f.staticBeat("two", "", joinEpoch, "")
	if len(topicsOf(two)) != 0 || two.MemberEpoch != 2 {
		t.Fatalf("two has %v in epoch %d before one is back", topicsOf(two), two.MemberEpoch)
	}
	p := f.staticBeat("one", "", joinEpoch, "")
	if p.MemberEpoch != 2 || !slices.Equal(topicsOf(p), []wire.UUID{x}) {
		t.Errorf("one is back in epoch %d with %v", p.MemberEpoch, topicsOf(p))
	}
	if got := topicsOf(f.staticBeat("two", two.MemberId.String, 2, "")); !slices.Equal(got, []wire.UUID{y}) {
		t.Errorf("two has %v", got)
	}
}
