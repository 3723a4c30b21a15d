package parsley_test

import (
	"testing"

	"kaas/codec/parsley"

	"github.com/google/uuid"
)

// Inlined into another package, a look-up could make its key escape: what the tests inside the package do not see.
func TestNothingIsAllocatedFromOutside(t *testing.T) {
	k := parsley.SequenceKey{Channel: parsley.Channel{Topic: uuid.MustParse("01020304-0506-0708-090a-0b0c0d0e0f10"), Partition: 7}}
	var c, d parsley.Clock
	c.RaiseOffset(k.Channel, 0)
	c.RaiseSequence(k, 0)
	d.CopyFrom(&c)
	n := int64(0)
	for name, f := range map[string]func(k parsley.SequenceKey){
		"Offset":         func(k parsley.SequenceKey) { c.Offset(k.Channel) },
		"Sequence":       func(k parsley.SequenceKey) { c.Sequence(k) },
		"RaiseOffset":    func(k parsley.SequenceKey) { n++; c.RaiseOffset(k.Channel, n) },
		"RaiseSequence":  func(k parsley.SequenceKey) { n++; c.RaiseSequence(k, n) },
		"RemoveOffset":   func(k parsley.SequenceKey) { c.RemoveOffset(k.Channel); c.RaiseOffset(k.Channel, 1) },
		"RemoveSequence": func(k parsley.SequenceKey) { c.RemoveSequence(k); c.RaiseSequence(k, 1) },
		"Merge":          func(parsley.SequenceKey) { d.Merge(&c) },
		"Dominates":      func(parsley.SequenceKey) { d.Dominates(&c) },
		"Compare":        func(k parsley.SequenceKey) { k.Compare(k) },
	} {
		if got := testing.AllocsPerRun(100, func() { f(k) }); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}
