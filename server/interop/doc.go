// Package interop holds tests that put clients of other people in front of the broker: franz-go in plain go test; Apache
// Kafka's own tools (Java), kcat, confluent-kafka (Python, Go) and kafkajs (Node) with the build tag "interop"; and loops of
// kill -9 under load. Everything written is read back and compared value by value, on request with what Apache Kafka gives.
// In oracle/ are the scripts that fetch Apache's tools and run its broker, in clients/ the programs around the other clients.
//
// The package has no code of its own and knows nothing of the broker but its command line, its port and its data directory.
//
//	go test ./server/interop                                    # franz-go, three kills
//	make interop                                                # all of it, thirty kills, compared with Apache Kafka
//	go test -tags interop ./server/interop -run Exchange -apache # every client reads what every client wrote, at both brokers
//	go test -tags interop ./server/interop -bootstrap HOST:PORT # against a broker that already runs, Apache's for example
package interop
