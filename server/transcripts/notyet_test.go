package transcripts

// notYet are the scenarios that the broker does not pass yet, by what they wait for. One that passes fails the test.
var notYet = map[string]string{
	"SASL and ACLs": `
		acls-bad acls-v0 acls-v1 acls-v2 authz-createacls-checked authz-groups-granted authz-idempotent-producer
		authz-implied-describe authz-none-groups authz-none-topics authz-partial-topics authz-transactions-granted
		sasl-apiversions-before sasl-garbage-on-sasl-port sasl-handshake-v0-raw sasl-plain-authzid sasl-plain-bad
		sasl-plain-good-v1 sasl-plain-good-v2 sasl-reauth-short-session sasl-request-before-auth sasl-scram-bad
		sasl-unsupported-mechanism scram-credentials-all metadata-advertised-listener restart-topics-configs-acls`,
	"message formats 0 and 1": `
		fetch-max-bytes fetch-v0 fetch-v3 produce-down-conversion produce-magic1-several produce-v0
		produce-v2`,
	"every API that Apache has, in ApiVersions": `
		apiversions-v1 apiversions-v2`,
	"admin APIs without a handler yet": `
		client-metrics-resources`,
}
