package transcripts

// notYet are the scenarios that the broker does not pass yet, by what they wait for. One that passes fails the test.
var notYet = map[string]string{
	"SASL and ACLs": `
		acls-bad acls-v0 acls-v1 acls-v2 authz-createacls-checked authz-groups-granted authz-idempotent-producer
		authz-implied-describe authz-none-groups authz-none-topics authz-partial-topics authz-transactions-granted
		sasl-apiversions-before sasl-garbage-on-sasl-port sasl-handshake-v0-raw sasl-plain-authzid sasl-plain-bad
		sasl-plain-good-v1 sasl-plain-good-v2 sasl-reauth-short-session sasl-request-before-auth sasl-scram-bad
		sasl-unsupported-mechanism addpartitions-v4-batched scram-credentials-all metadata-advertised-listener restart-topics-configs-acls`,
	"message formats 0 and 1": `
		fetch-max-bytes fetch-v0 fetch-v3 produce-down-conversion produce-magic1-several produce-v0
		produce-v2`,
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
