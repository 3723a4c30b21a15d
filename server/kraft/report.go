package kraft

import "fmt"

// Refusal is why a directory is not imported: something about it that its owner has to decide or mend. Nothing was changed.
type Refusal struct{ Text string }

func (r *Refusal) Error() string { return r.Text }

func refusef(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// Report says what an import took and left; for a dry run, what it would.
type Report struct {
	Dir       string `json:"dir"`
	DryRun    bool   `json:"dryRun"`
	Already   bool   `json:"alreadyImported"` // by an earlier import: nothing was done; only MetadataOffset and Stored are filled
	ClusterID string `json:"clusterId,omitempty"`
	NodeID    int32  `json:"nodeId"`
	Clean     bool   `json:"stoppedCleanly"` // Apache said so; otherwise the first start verifies the logs from their recovery points on

	Snapshot       string `json:"metadataSnapshot,omitempty"` // file that was read
	MetadataOffset int64  `json:"metadataOffset"`             // end of what was read of the metadata log
	TornMetadata   bool   `json:"metadataTailCut,omitempty"`  // it ended inside a batch, which never counted
	NextProducerID int64  `json:"nextProducerId"`             // the first that kaas will give

	Topics        []TopicReport                `json:"topics"`
	BrokerConfigs map[string]map[string]string `json:"brokerConfigs,omitempty"` // by node id, "" for the default of all
	Stored        Stored                       `json:"storedNotUsedYet"`

	Removed   []string `json:"removedAtNextStart,omitempty"` // directories of topics that were deleted
	LeftAlone []string `json:"leftAlone,omitempty"`          // files and directories that kaas does not touch
	Warnings  []string `json:"warnings,omitempty"`
}

// TopicReport is one topic.
type TopicReport struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Partitions int32             `json:"partitions"`
	LastEpoch  int32             `json:"lastLeaderEpoch"` // the highest of Apache's; the first start has two more
	Internal   bool              `json:"internal,omitempty"`
	Configs    map[string]string `json:"configs,omitempty"`
	Bytes      int64             `json:"bytes"`
}

// Stored counts what the catalog takes over beside topics and settings. Quotas are in force from the first start on; the rest is kept although
// this version of kaas does not use it.
type Stored struct {
	ACLs          int      `json:"acls"`
	ScramUsers    []string `json:"scramUsers,omitempty"` // name and mechanism
	Quotas        int      `json:"quotas"`
	Features      int      `json:"features"`
	Tokens        int      `json:"delegationTokens"`
	ClientMetrics int      `json:"clientMetricsSubscriptions"`
}
