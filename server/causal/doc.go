// Package causal is a node of causal delivery: it takes in the records of the channels that one task consumes, hands each out
// once everything that happened before it on these channels was handed out, and stamps what the task sends with all that
// the node has seen. docs/parsley.md says what that is for; codec/parsley has the bytes.
//
// It is not a host: it knows no broker, no transaction, no topic name, no time, and starts no goroutine. Everything it
// learns comes in through a call, everything it keeps goes through a Store, and equal calls give equal results.
//
// # A life of a node
//
//	n, err := causal.Open(config, store)      // reads what the life before left
//	n.FormerSinks()                           // to be asked about, beside the declared ones
//	err = n.Start(causal.Facts{…})            // ends of what was sent, and so on
//	n.ResumePositions(), n.Covered(channel)   // where to read from; else the committed position
//	err = n.CheckLogs(facts)                  // nothing that the node needs was deleted
//	err = n.Commit(changelog)
//	for {
//		out, err = n.Receive(channel, record, out[:0]) // or PositionAdvance, LookedBack, Resume while More
//		for each delivery: run the logic, and for each record it sends: n.Stamp(destination, &stamp)
//		err = n.Commit(changelog)         // with the sends and the positions, in one transaction
//	}
//	now and then: CheckLogs, UpgradeCustody, TruncateToLogStarts; at acknowledgements: Acked
//
// A life ends at any time, by leaving the node alone. The store then has what the last Commit wrote, and the next life goes
// on from there; the host begins again at the positions of the same transaction, or before: what comes again is skipped.
// After an error the node refuses everything, as a host that went on could break the order: its transaction is to be
// aborted, and the node made anew. Only ErrPhase and ErrParity change nothing.
//
// # Duties of a host
//
//   - Each channel is fed in ascending order of offsets, committed records only.
//   - PositionAdvance for offsets that never arrive (markers, aborted records), when all before them was fed.
//   - Writes of the node, positions and sends are committed together or not at all.
//   - The partition is chosen before the stamp, and what is stamped for a channel is sent to it in this order.
//   - A topic is its id. Recreated, it is another one: the old id leaves Consumed or Sinks, the new one comes.
//   - A topic is deleted when nobody holds records of it any more: others drop their claims on it, so what is held must not be
//     delivered. The node refuses (ErrHeldOnRemoved, ErrHeldLost), and only another one, without this past, can go on.
//   - Positions are never reset by themselves; CheckLogs says when retention went too far.
//
// # Invariants
//
//   - When a record is delivered, every record on a consumed channel that happened before it, from the first position of the
//     node on, was delivered. Offsets of a channel are delivered in ascending order, each once.
//   - A stamp claims only offsets that exist and sequences that were issued, never the record itself.
//   - What is met stays met: frontiers and marks only grow. A head that waits is in exactly one heap, under the first claim
//     that is not met, so one advance wakes only those who waited for it: r releases cost O(r log n).
//   - Everything that the next life needs is in the store after a Commit. Beyond Config.HeldBytes held records are there
//     alone; they take no memory of the node, and of the store what its index takes for a key.
//   - Channels are taken in ascending order wherever order can be seen.
//
// # Parity
//
// Config.Parity makes the node do what the existing implementation does, so that stores can be compared byte for byte: sequences
// begin at 0, clocks may be unsorted, nothing but the frontier guards against records that come again, replays leave no
// marks, other headers are lost, claims on own sends are always left to own outputs, and there is no acknowledgement, no upgrade
// of custody, no look-back and no limit. One fault is not taken over: a queue whose records are all missing does not start.
package causal
