// Package txn is the state machine of one shard of the transaction coordinator, as Apache Kafka 3.7 keeps transactional ids in
// __transaction_state: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn (KIP-98, KIP-360), DescribeTransactions and ListTransactions
// (KIP-664), time-outs and expiry. A Shard implements coordinator.State; the runtime of package coordinator feeds it operations,
// records and alarms on one goroutine. Records are Apache's own: TransactionLogKey v0 with TransactionLogValue v0.
//
// What it is not: it does no I/O, starts no goroutine, asks no clock and knows no connection. It writes no markers: it hands them out
// (MarkerWork) and is told of them (Shard.MarkersWritten). Authorization, which partitions exist, which shard holds an id, and where
// producer ids come from are the caller's business.
//
// # Calling it
//
// All methods run on the shard's goroutine, in operations given under the transactional id.
//
//	Describe, List                      look and return the answer, for the Done of an Outcome that writes nothing.
//	InitProducerID, AddPartitions, AddOffsets, Verify, EndTxn
//	                                    return an Outcome. reply is called exactly once: in the operation (Verify), in the
//	                                    Outcome's Done, or later (EndTxn).
//	MarkersWritten                      returns an Outcome; it answers nobody.
//	AbortOverdue, Expire                are Ticks of the runtime.
//
// Requests may alias a buffer that is used again after the call: what is kept is cloned. For an operation that the runtime refused Refusal
// says what to answer.
//
// # Invariants
//
//   - What is in the log changes in Replay alone; so nothing has to be undone when a record could not be written, and there is no
//     transition in progress that others have to be kept from: the next operation on an id sees the record.
//   - Markers are handed out when the decision is durable, once in a life of the shard; after a restart all those that are not complete again.
//     The completion is written when all of them are durable. So until a transaction is complete in the log, its decision and
//     partitions are, and it ends in one way only.
//   - An answer shows what is durable. EndTxn's shows the decision; the completion that it waits for need not be, as the next record of the
//     id lies behind it.
//   - Only open transactions hold more than the fixed size of a transactional id.
package txn
