// Package tlsconfig makes the crypto/tls configuration of a listener from Apache Kafka's ssl.* settings: it reads key stores and trust
// stores (PEM, JKS, PKCS12), checks every setting, and reads the files again when they change on disk.
//
// It opens no sockets and knows neither the broker nor its table of settings: the caller hands the values in as strings.
//
// Invariants: a setting that is wrong is an *Error that names its key and what is allowed; nothing is guessed and nothing falls open, so a
// listener that is to ask for certificates has a trust store, and cipher suites that cannot be had are refused. A store that cannot be read
// when it changed leaves the former one in force. Files are looked at on the goroutine of a handshake, at most once in checkEvery, and never
// without one.
package tlsconfig
