package api

import (
	"kaas/codec/api"
)

// handler is one row of the table: an API key, the versions served of it, and what serves them.
type handler struct {
	key      int16
	min, max int16
	serve    func(*call) // nil for Produce and Fetch, which the dispatcher calls on paths of their own
	fact     *api.Fact
	unstable bool // offered only with unstable.api.versions.enable
}

// maxKey bounds the look-up table; it is above every key of the registry.
const maxKey = 128

// served lists what this broker serves, in the order of the keys. min and max are versions; they lie within the registry's range.
var served = [...]handler{
	{key: api.KeyProduce, min: 0, max: 10},
	{key: api.KeyFetch, min: 4, max: 16},
	{key: api.KeyListOffsets, min: 0, max: 8, serve: offLoop(listOffsets)},
	{key: api.KeyMetadata, min: 0, max: 12, serve: serveMetadata},
	{key: api.KeyOffsetCommit, min: 0, max: 9, serve: serveOffsetCommit},
	{key: api.KeyOffsetFetch, min: 0, max: 9, serve: serveOffsetFetch},
	{key: api.KeyFindCoordinator, min: 0, max: 4, serve: offLoop(findCoordinator)},
	{key: api.KeyJoinGroup, min: 0, max: 9, serve: joinGroup},
	{key: api.KeyHeartbeat, min: 0, max: 4, serve: heartbeat},
	{key: api.KeyLeaveGroup, min: 0, max: 5, serve: leaveGroup},
	{key: api.KeySyncGroup, min: 0, max: 5, serve: syncGroup},
	{key: api.KeyDescribeGroups, min: 0, max: 5, serve: serveDescribeGroups},
	{key: api.KeyListGroups, min: 0, max: 4, serve: serveListGroups},
	{key: api.KeyApiVersions, min: 0, max: 3, serve: serveApiVersions},
	{key: api.KeyCreateTopics, min: 0, max: 7, serve: offLoop(createTopics)},
	{key: api.KeyDeleteTopics, min: 0, max: 6, serve: offLoop(deleteTopics)},
	{key: api.KeyDeleteRecords, min: 0, max: 2, serve: offLoop(deleteRecords)},
	{key: api.KeyInitProducerId, min: 0, max: 4, serve: initProducerID},
	{key: api.KeyOffsetForLeaderEpoch, min: 0, max: 4, serve: offLoop(offsetForLeaderEpoch)},
	{key: api.KeyAddPartitionsToTxn, min: 0, max: 4, serve: addPartitionsToTxn},
	{key: api.KeyAddOffsetsToTxn, min: 0, max: 3, serve: addOffsetsToTxn},
	{key: api.KeyEndTxn, min: 0, max: 3, serve: endTxn},
	{key: api.KeyWriteTxnMarkers, min: 0, max: 1, serve: writeTxnMarkers},
	{key: api.KeyTxnOffsetCommit, min: 0, max: 3, serve: txnOffsetCommit},
	{key: api.KeyDescribeConfigs, min: 0, max: 4, serve: offLoop(describeConfigs)},
	{key: api.KeyAlterConfigs, min: 0, max: 2, serve: offLoop(alterConfigs)},
	{key: api.KeyAlterReplicaLogDirs, min: 0, max: 2, serve: offLoop(alterReplicaLogDirs)},
	{key: api.KeyDescribeLogDirs, min: 0, max: 4, serve: offLoop(describeLogDirs)},
	{key: api.KeyCreatePartitions, min: 0, max: 3, serve: offLoop(createPartitions)},
	{key: api.KeyCreateDelegationToken, min: 0, max: 3, serve: onLoop(createDelegationToken)},
	{key: api.KeyRenewDelegationToken, min: 0, max: 2, serve: onLoop(renewDelegationToken)},
	{key: api.KeyExpireDelegationToken, min: 0, max: 2, serve: onLoop(expireDelegationToken)},
	{key: api.KeyDescribeDelegationToken, min: 0, max: 3, serve: onLoop(describeDelegationToken)},
	{key: api.KeyDeleteGroups, min: 0, max: 2, serve: serveDeleteGroups},
	{key: api.KeyElectLeaders, min: 0, max: 2, serve: offLoop(electLeaders)},
	{key: api.KeyIncrementalAlterConfigs, min: 0, max: 1, serve: offLoop(incrementalAlterConfigs)},
	{key: api.KeyAlterPartitionReassignments, min: 0, max: 0, serve: onLoop(alterPartitionReassignments)},
	{key: api.KeyListPartitionReassignments, min: 0, max: 0, serve: onLoop(listPartitionReassignments)},
	{key: api.KeyOffsetDelete, min: 0, max: 0, serve: offsetDelete},
	{key: api.KeyDescribeClientQuotas, min: 0, max: 1, serve: onLoop(describeClientQuotas)},
	{key: api.KeyAlterClientQuotas, min: 0, max: 1, serve: offLoop(alterClientQuotas)},
	{key: api.KeyUpdateFeatures, min: 0, max: 1, serve: onLoop(updateFeatures)},
	{key: api.KeyDescribeCluster, min: 0, max: 1, serve: onLoop(describeCluster)},
	{key: api.KeyDescribeProducers, min: 0, max: 0, serve: offLoop(describeProducers)},
	{key: api.KeyUnregisterBroker, min: 0, max: 0, serve: onLoop(unregisterBroker)},
	{key: api.KeyDescribeTransactions, min: 0, max: 0, serve: serveDescribeTransactions},
	{key: api.KeyListTransactions, min: 0, max: 0, serve: serveListTransactions},
	{key: api.KeyConsumerGroupHeartbeat, min: 0, max: 0, serve: serveConsumerGroupHeartbeat},
	{key: api.KeyConsumerGroupDescribe, min: 0, max: 0, serve: serveConsumerGroupDescribe, unstable: true},
	{key: api.KeyListClientMetricsResources, min: 0, max: 0, serve: onLoop(listClientMetricsResources)},
}

// handlerOf finds the handler of a key; nil if it is not served.
func (s *Service) handlerOf(key int16) *handler {
	if key < 0 || key >= maxKey {
		return nil
	}
	return s.handlers[key]
}

// joinHandlers joins the table with the registry. A row outside the registry's versions is a mistake in the table.
func joinHandlers() (t [maxKey]*handler) {
	for i := range served {
		h := served[i]
		fact, ok := api.Lookup(h.key)
		if !ok || h.min < fact.Min || h.max > fact.Max {
			panic("BUG: served versions outside the registry: " + fact.Name)
		}
		h.fact = &fact
		t[h.key] = &h
	}
	return t
}

// Served tells which versions of an API are served.
func (s *Service) Served(key int16) (min, max int16, ok bool) {
	h := s.handlerOf(key)
	if h == nil {
		return 0, 0, false
	}
	return h.min, h.max, true
}
