// Package interop holds tests that put clients of other people in front of the broker: franz-go in plain go test,
// Apache Kafka's own tools (Java) with the build tag "interop", and a loop of kill -9 under load. Everything written is read back
// and compared value by value. In oracle/ are the scripts that fetch those tools and run Apache Kafka itself.
//
// The package has no code of its own and knows nothing of the broker but its command line, its port and its data directory.
//
//	go test ./server/interop                                    # franz-go, three kills
//	make interop                                                # all of it, thirty kills
//	go test -tags interop ./server/interop -bootstrap HOST:PORT # against a broker that already runs, Apache's for example
package interop
