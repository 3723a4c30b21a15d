package transcripts

// notYet are the scenarios that the broker does not pass yet, by what they wait for. One that passes fails the test.
var notYet = map[string]string{
	"SASL and ACLs": `
		acls-bad acls-v0 acls-v1 acls-v2 authz-createacls-checked authz-groups-granted authz-idempotent-producer
		authz-implied-describe authz-none-groups authz-none-topics authz-partial-topics authz-transactions-granted
		sasl-apiversions-before sasl-garbage-on-sasl-port sasl-handshake-v0-raw sasl-plain-authzid sasl-plain-bad
		sasl-plain-good-v1 sasl-plain-good-v2 sasl-reauth-short-session sasl-request-before-auth sasl-scram-bad
		sasl-unsupported-mechanism addpartitions-v4-batched scram-credentials-all metadata-advertised-listener`,
	"quotas": `
		client-quotas restart-topics-configs-acls`,
	"message formats 0 and 1": `
		fetch-max-bytes fetch-v0 fetch-v3 produce-down-conversion produce-magic1-several produce-v0
		produce-v2`,
	"groups and committed offsets": `
		group-empty-assignment-list group-initial-delay-zero group-leader-omits-assignment group-max-size
		group-protocol-vote group-rebalance-timeout group-rejoin-same-metadata group-two-members heartbeat-errors
		joingroup-bad-arguments joingroup-inconsistent-protocol joingroup-member-id-prefix joingroup-v0-first-member
		joingroup-v1-first-member joingroup-v3-first-member joingroup-v4-first-member joingroup-v6-first-member
		joingroup-v7-first-member joingroup-v8-first-member leavegroup-batched leavegroup-v0 leavegroup-v2 leavegroup-v3
		leavegroup-v5 static-and-dynamic static-member-new-metadata syncgroup-errors deletegroups-v0 deletegroups-v2
		describegroups-states describegroups-v0 describegroups-v2 describegroups-v3 describegroups-v4 empty-group-id
		listgroups-filters offsetcommit-empty-group offsetcommit-metadata offsetcommit-negative-offset offsetcommit-v0
		offsetcommit-v2 offsetcommit-v3 offsetcommit-v4 offsetcommit-v6 offsetcommit-v7 offsetcommit-v8
		offsetdelete-subscribed offsetdelete offsetfetch-batched offsetfetch-no-topics-v1 restart-deleted-group
		restart-dynamic-member restart-offsets metadata-internal-topic createtopics-internal-name trailing-bytes`,
	"transactions": `
		restart-open-transaction restart-pending-txn-offsets addpartitions-v0 addpartitions-v1 addpartitions-v3
		describeproducers describetransactions endtxn-after-reconnect endtxn-v1 endtxn-v2 endtxn-v3
		initproducerid-fenced-old-epoch listtransactions txn-commit-visible txn-delete-records-open
		txn-fetch-wakes-on-commit txn-nontransactional-in-open-txn txn-pending-offsets-delete txn-sequences
		txn-two-interleaved txnoffsetcommit-errors txnoffsetcommit-v0 txnoffsetcommit-v1 txnoffsetcommit-v3
		writetxnmarkers-aborts-hanging initproducerid-v0 initproducerid-v2 initproducerid-v3 initproducerid-v4
		initproducerid-with-epoch`,
	"every API that Apache has, in ApiVersions": `
		apiversions-v1 apiversions-v2`,
	"admin APIs without a handler yet": `
		client-metrics-resources`,
}
