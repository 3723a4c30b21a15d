package kraft

import (
	"fmt"
	"slices"

	"kaas/codec/api"
	"kaas/codec/wire"
)

// frameVersion is the version of the frame around a metadata record: uvarint frame version, uvarint record id, uvarint version.
const frameVersion = 1

// recordKind is a kind of metadata record: the highest version that is understood, and a message to decode it into.
type recordKind struct {
	name       string
	maxVersion int16
	message    func() api.Message
}

func kind[T any, M interface {
	*T
	api.Message
}](name string, maxVersion int16) recordKind {
	return recordKind{name, maxVersion, func() api.Message { return M(new(T)) }}
}

// recordKinds are all kinds that Apache Kafka 3.7 has. Those whose state is of no use here are decoded too, so that nothing unread
// is passed over.
var recordKinds = map[uint32]recordKind{
	api.RegisterBrokerRecordID:            kind[api.RegisterBrokerRecord]("RegisterBroker", api.RegisterBrokerRecordMaxVersion),
	api.UnregisterBrokerRecordID:          kind[api.UnregisterBrokerRecord]("UnregisterBroker", api.UnregisterBrokerRecordMaxVersion),
	api.TopicRecordID:                     kind[api.TopicRecord]("Topic", api.TopicRecordMaxVersion),
	api.PartitionRecordID:                 kind[api.PartitionRecord]("Partition", api.PartitionRecordMaxVersion),
	api.ConfigRecordID:                    kind[api.ConfigRecord]("Config", api.ConfigRecordMaxVersion),
	api.PartitionChangeRecordID:           kind[api.PartitionChangeRecord]("PartitionChange", api.PartitionChangeRecordMaxVersion),
	api.FenceBrokerRecordID:               kind[api.FenceBrokerRecord]("FenceBroker", api.FenceBrokerRecordMaxVersion),
	api.UnfenceBrokerRecordID:             kind[api.UnfenceBrokerRecord]("UnfenceBroker", api.UnfenceBrokerRecordMaxVersion),
	api.RemoveTopicRecordID:               kind[api.RemoveTopicRecord]("RemoveTopic", api.RemoveTopicRecordMaxVersion),
	api.DelegationTokenRecordID:           kind[api.DelegationTokenRecord]("DelegationToken", api.DelegationTokenRecordMaxVersion),
	api.UserScramCredentialRecordID:       kind[api.UserScramCredentialRecord]("UserScramCredential", api.UserScramCredentialRecordMaxVersion),
	api.FeatureLevelRecordID:              kind[api.FeatureLevelRecord]("FeatureLevel", api.FeatureLevelRecordMaxVersion),
	api.ClientQuotaRecordID:               kind[api.ClientQuotaRecord]("ClientQuota", api.ClientQuotaRecordMaxVersion),
	api.ProducerIdsRecordID:               kind[api.ProducerIdsRecord]("ProducerIds", api.ProducerIdsRecordMaxVersion),
	api.BrokerRegistrationChangeRecordID:  kind[api.BrokerRegistrationChangeRecord]("BrokerRegistrationChange", api.BrokerRegistrationChangeRecordMaxVersion),
	api.AccessControlEntryRecordID:        kind[api.AccessControlEntryRecord]("AccessControlEntry", api.AccessControlEntryRecordMaxVersion),
	api.RemoveAccessControlEntryRecordID:  kind[api.RemoveAccessControlEntryRecord]("RemoveAccessControlEntry", api.RemoveAccessControlEntryRecordMaxVersion),
	api.NoOpRecordID:                      kind[api.NoOpRecord]("NoOp", api.NoOpRecordMaxVersion),
	api.ZkMigrationStateRecordID:          kind[api.ZkMigrationStateRecord]("ZkMigrationState", api.ZkMigrationStateRecordMaxVersion),
	api.RemoveUserScramCredentialRecordID: kind[api.RemoveUserScramCredentialRecord]("RemoveUserScramCredential", api.RemoveUserScramCredentialRecordMaxVersion),
	api.BeginTransactionRecordID:          kind[api.BeginTransactionRecord]("BeginTransaction", api.BeginTransactionRecordMaxVersion),
	api.EndTransactionRecordID:            kind[api.EndTransactionRecord]("EndTransaction", api.EndTransactionRecordMaxVersion),
	api.AbortTransactionRecordID:          kind[api.AbortTransactionRecord]("AbortTransaction", api.AbortTransactionRecordMaxVersion),
	api.RemoveDelegationTokenRecordID:     kind[api.RemoveDelegationTokenRecord]("RemoveDelegationToken", api.RemoveDelegationTokenRecordMaxVersion),
	api.RegisterControllerRecordID:        kind[api.RegisterControllerRecord]("RegisterController", api.RegisterControllerRecordMaxVersion),
}

// decodeRecord reads the value of a record of the metadata log. The message keeps nothing of value.
func decodeRecord(value []byte) (api.Message, error) {
	r := wire.NewReader(slices.Clone(value))
	frame, id, version := r.Uvarint(), r.Uvarint(), r.Uvarint()
	if r.Failed() {
		return nil, fmt.Errorf("metadata record: %w", r.Err())
	}
	k, known := recordKinds[id]
	switch {
	case frame != frameVersion:
		return nil, fmt.Errorf("metadata record with frame version %d, not %d", frame, frameVersion)
	case !known:
		return nil, fmt.Errorf("metadata record of unknown kind %d: written by a newer Kafka", id)
	case version > uint32(k.maxVersion):
		return nil, fmt.Errorf("%s record of version %d, known up to %d: written by a newer Kafka", k.name, version, k.maxVersion)
	}
	m := k.message()
	m.Decode(&r, int16(version))
	if r.Failed() {
		return nil, fmt.Errorf("%s record: %w", k.name, r.Err())
	}
	if r.Rest() > 0 {
		return nil, fmt.Errorf("%s record: %d bytes left over", k.name, r.Rest())
	}
	return m, nil
}
