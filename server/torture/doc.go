// Package torture holds a test, behind the build tag "torture", that maltreats a broker process while clients work with it: kill -9,
// stops by signal, restarts, a full disk, failing and slow operations of the file system by the rules of engine/vfs/crashfs, the loss of
// what the broker has not synced, and, on an ext4 of its own, power cuts (the file system is shut down without a last word, and mounted
// again) and remounts to read-only. What is done when is drawn from a seed, which is printed; the timing of processes is not, so a seed
// repeats the plan and not the run.
//
// The package has no code of its own. The broker is the test binary, which runs itself again; the clients are franz-go. A history of
// what was sent, acknowledged and read is judged when a broker has had its rounds (history_test.go, which has tests without the tag).
//
// A second test does the same under clients that write, copy and read in transactions: processes of this binary and Apache's
// TransactionalMessageCopier (left out without .ci/java), which are killed, stopped and fenced as well. Its judge is package history.
//
// A process that is killed leaves its unsynced data to the kernel. For a loss the broker writes down, before it kills itself, what it has
// not synced, and its next start takes all or a part of that back (power_test.go, which has a test without the tag): who acknowledged or
// showed a record before its sync is found out at any moment and on any disk, with writes torn and out of order. What it cannot see: names
// that were not synced. The ext4 has them, and engine.TestModel.
//
// Producers are idempotent with the five requests in flight that franz-go has then (its option for another number has no effect); after a kill, or
// several, they repeat all of them.
//
//	make torture                                          # ROUNDS=60
//	make torture ROUNDS=1000 SEED=7
//	go test -tags torture -timeout 0 -v ./server/torture -minutes 30
package torture
