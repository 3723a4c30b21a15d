package api

import (
	"fmt"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// DescribeCluster, key 60, v0-v1. v1 endpoint type: brokers or controllers.

// endpointBrokers is the endpoint type of brokers; controllers (2) are asked for at a controller's port, which this broker has not.
const endpointBrokers = 1

// describeCluster answers.
func describeCluster(c *call, q *api.DescribeClusterRequest, p *api.DescribeClusterResponse) {
	if q.EndpointType != endpointBrokers {
		code := api.ErrMismatchedEndpointType
		if q.EndpointType != 2 {
			code = api.ErrUnsupportedEndpointType
		}
		p.ErrorCode = code
		p.ErrorMessage = wire.Some(fmt.Sprintf("endpoint type %d cannot be described here: this is a broker's listener", q.EndpointType))
		return
	}
	host, port := c.s.endpoint(c.conn)
	p.ClusterId, p.ControllerId = c.s.clusterID, c.s.nodeID
	p.Brokers = []api.DescribeClusterResponseDescribeClusterBroker{{BrokerId: c.s.nodeID, Host: host, Port: port, Rack: c.s.rack}}
	if q.IncludeClusterAuthorizedOperations {
		p.ClusterAuthorizedOperations = clusterOperations
	}
}
