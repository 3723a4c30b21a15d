package causal_test

import (
	"fmt"

	"github.com/google/uuid"

	"kaas/codec/parsley"
	"kaas/server/causal"
)

// Example is one task of a stage: it reads orders and payments, and sends receipts. A payment says that it was made after an
// order was seen, so it is not handed out before that order, though it arrives earlier.
func Example() {
	orders := parsley.Channel{Topic: uuid.UUID{15: 1}}
	payments := parsley.Channel{Topic: uuid.UUID{15: 2}}
	receipts := parsley.Channel{Topic: uuid.UUID{15: 3}}
	store := &causal.Memory{}
	config := causal.Config{
		Sender:   parsley.SenderID("shop", "receipts", 0),
		Consumed: []parsley.Channel{orders, payments},
		Sinks:    []uuid.UUID{receipts.Topic},
	}
	node, err := causal.Open(config, store)
	check(err)
	check(node.Start(causal.Facts{Ends: []causal.End{{Channel: receipts, Offset: 0}}, SequenceBase: 1000}))
	check(node.Commit(nil))

	// What a consumer returns, in this order.
	var after parsley.Clock
	after.RaiseOffset(orders, 7)
	fetched := []struct {
		from   parsley.Channel
		record parsley.Held
	}{
		{payments, parsley.Held{Offset: 4, Sequence: -1, Clock: after, Value: []byte("payment for order 7")}},
		{orders, parsley.Held{Offset: 6, Sequence: -1, Value: []byte("order 6")}},
		{orders, parsley.Held{Offset: 7, Sequence: -1, Value: []byte("order 7")}},
	}
	var out []causal.Delivery
	for _, f := range fetched {
		out, err = node.Receive(f.from, &f.record, out[:0])
		check(err)
		for _, held := range node.Explain() {
			for _, u := range held.Unmet {
				fmt.Printf("offset %d waits for offset %d of another channel, which is at %d: %s\n", held.Offset, u.Claimed, u.Frontier, u.Diagnosis())
			}
		}
		for _, d := range out {
			var stamp parsley.Stamp
			check(node.Stamp(receipts, &stamp))
			headers, _ := stamp.AppendHeaders(nil, nil)
			fmt.Printf("%s: receipt %d with %d headers and %d claims\n", d.Value, stamp.Sequence, len(headers), stamp.Clock.Width())
		}
		check(node.Commit(nil)) // with the receipts and the positions, in one transaction
	}

	// The task is restarted elsewhere; the end of the receipts covers all that it sent.
	node, err = causal.Open(config, store)
	check(err)
	check(node.Start(causal.Facts{Ends: []causal.End{{Channel: receipts, Offset: 3}}, SequenceBase: 2000}))
	fmt.Println("reads on at", node.Covered(orders), "and", node.Covered(payments))
	// Output:
	// offset 4 waits for offset 7 of another channel, which is at -1: vc-hold-not-fetched
	// offset 4 waits for offset 7 of another channel, which is at 6: vc-hold-not-fetched
	// order 6: receipt 1000 with 3 headers and 2 claims
	// order 7: receipt 1001 with 3 headers and 3 claims
	// payment for order 7: receipt 1002 with 3 headers and 3 claims
	// reads on at 8 and 5
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
