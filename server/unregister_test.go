package server

import (
	"testing"

	"kaas/codec/api"
)

// No broker is forgotten: others are not known, and this one is still described afterwards.
func TestUnregisterBroker(t *testing.T) {
	c := dial(t, broker(t))
	for id, want := range map[int32]api.ErrorCode{1: api.ErrInvalidRequest, 2: api.ErrBrokerIdNotRegistered, -1: api.ErrBrokerIdNotRegistered} {
		var p api.UnregisterBrokerResponse
		c.call(api.KeyUnregisterBroker, 0, &api.UnregisterBrokerRequest{BrokerId: id}, &p)
		if p.ErrorCode != want || p.ErrorMessage.String == "" {
			t.Errorf("broker %d: %v %q, want %v", id, p.ErrorCode, p.ErrorMessage.String, want)
		}
	}
	var d api.DescribeClusterResponse
	c.call(api.KeyDescribeCluster, 0, &api.DescribeClusterRequest{EndpointType: 1}, &d)
	if len(d.Brokers) != 1 || d.Brokers[0].BrokerId != 1 {
		t.Errorf("afterwards: %+v", d.Brokers)
	}
}
