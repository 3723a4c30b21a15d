// Package transcripts plays recorded request scripts against a broker and says where its answers differ from those that
// Apache Kafka 3.7.2 gave. The scripts are in testdata, one directory per area; README.md describes their notation.
//
// It is a second opinion: it has a codec of its own, driven by schemas.json, and shares nothing with the product.
// Bytes left over in an answer, unknown tags, nulls that may not be, a wrong correlation id and a wrong header version
// are differences in themselves. It is no client: it never retries unless a script says so, and it never repairs an answer.
package transcripts
