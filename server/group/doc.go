// Package group is the state machine of one shard of the group coordinator: classic consumer groups (JoinGroup, SyncGroup, Heartbeat,
// LeaveGroup), consumer groups (KIP-848) and committed offsets, as Apache Kafka 3.7 keeps them in __consumer_offsets. A Shard implements coordinator.State; the
// runtime of package coordinator feeds it operations, records and alarms on one goroutine. Records are Apache's own: OffsetCommitKey v1
// with OffsetCommitValue v3 (v1 when a commit brings its own retention), GroupMetadataKey v2 with GroupMetadataValue v3.
//
// What it is not: it does no I/O, starts no goroutine, asks no clock and knows no connection. Authorization, the transaction check of
// TxnOffsetCommit (48) and which shard holds a group are the caller's business.
//
// # Calling it
//
// Two kinds of methods, all on the shard's goroutine:
//
//	Heartbeat, Fetch, Describe, List    look and return the answer. The caller sends it in the Done of an Outcome that
//	                                    writes nothing, so that it comes after what was appended before. Their answers
//	                                    alias only memory that is never changed.
//	Join, Sync, Leave, Commit, TxnCommit, DeleteOffsets, DeleteGroup, TopicDeleted, ExpireOffsets
//	                                    return an Outcome. reply is called exactly once: in the Outcome's Done, or later
//	                                    in that of another operation or alarm (Join, Sync), or from Closed.
//
// Requests may alias a buffer that is used again after the call: what is kept is cloned. For an operation that the runtime refused
// (loading, not available, not owned) Refusal says what each API answers.
//
// # Invariants
//
//   - Offsets change in Replay alone. Membership lives ahead of the topic, as in Apache: a generation is written when its leader's
//     assignment arrives and when a group becomes empty, and the record of a living group is only read when a shard is loaded.
//   - Every parked reply is answered: when the rebalance ends, when its alarm rings, when its member goes or is replaced, or by Closed.
//     Apache forgets a reply whose member asks a second time; here the first one is answered 27.
//   - A group that is being deleted is Dead until the tombstones are there (answer 15), and Empty again if they could not be written.
//   - A heartbeat moves a deadline and nothing else: one alarm per member is re-checked when it rings.
//
// # Where Apache is not followed
//
//   - A parked SyncGroup whose member is taken out is answered 25; Apache forgets it.
//   - Removing offsets also writes tombstones for those that a transaction has pending: after a restart Apache brings them back when the
//     marker comes.
//   - An id that was handed out (79) keeps its empty group from expiring; Apache drops the group, and the id is answered 25.
//   - A simple group whose only offsets were aborted is gone at once, not with the next search for expired ones.
//   - Which of two protocols with as many votes is taken, and who leads when the leader is gone, Apache leaves to its hash tables; here
//     whoever came first decides.
//
// # Groups of the consumer protocol (KIP-848)
//
// A group is a sum by pointers: none for a simple group, classic or consumer for those with members. ConsumerHeartbeat, ConsumerDescribe
// and the files consumer_*.go and assignor*.go serve consumer groups as Apache 3.7 offers them early; with Config.Consumer nil they are off
// and their records (keys 3-8) are passed over and stay in the topic. All of such a group follows from its records and changes in Replay
// alone, but for its members' alarms and for when it last looked at its topics. No partition has two owners: a member gets what nobody has,
// and what it is to give up stays its own until it says so or is taken out.
//
// Unlike Apache: topics within a record and members within a batch are in the order of their ids, where Apache has that of its hash tables;
// members that subscribe to different topics are balanced by single moves, which now and then balances better; a member all of whose topics
// are gone is answered (Apache fails, -1); a static member that is back and is to have less than before has given the rest up (Apache keeps it
// in epoch 0, in which nothing that it says is taken until its session ends) and leaves the others' targets as they are (Apache asks the
// assignor again within the epoch: where that answers otherwise, others never hear of it and the group does not come to rest); texts of errors
// are other ones.
package group
