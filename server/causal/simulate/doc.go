// Package simulate proves the causal node by simulation: its tests run nodes of server/causal in worlds that are made of chance, and an
// oracle judges every delivery.
//
// A world is a broker (topics with ids, logs with offsets, transactions with markers, a last stable offset, retention, deletion),
// hosts that keep the duties which the package comment of server/causal lists, plain clients, and a dice that says what happens
// next: a fetch, a commit, a crash with or without the transaction left open, a power cut of the store's disk, a start from older
// positions, a change of scope, a sweep. It is not a model of a network or of time, and nothing here runs at the same time.
//
// The oracle knows what really happened before what: it sees each delivery and each send of each actor, in the order of
// the program, and never a clock. It fails a delivery of a record of whose past something is missing, out of order or
// twice, and at the end, when nothing can happen any more, whatever was not delivered. What may be lost is what the protocol
// allows to be lost: records below the first position of an actor on a channel, and those of a destroyed topic.
//
// A run is its seed: -seeds says how many each scenario tries, -seed which one. A failing run is made shorter as long as it fails in
// the same way, and its steps are printed. That the oracle can fail is tested too: hosts and nodes that are broken in one
// place (broken_test.go), and the sources of the node with one change each (mutants_test.go) must fail. That the runs reach what they are for
// is tested by floors: of the seeds of a scenario so many must hold records, crash, prune, and so on.
//
// The package has no code but its tests and is linked into no program.
package simulate
