package simulate

import "math/rand/v2"

// dice is all the chance of a run. What it gave lies on a tape, so that a run can be repeated with parts of its tape cut out. Beyond the
// end of a tape it gives the highest number: of the actions that are possible, the last, and no event that is less than certain.
type dice struct {
	rng    *rand.Rand // nil: from the tape alone
	tape   []uint32
	at     int
	number int // numbers given
}

func newDice(seed uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, 0x9a5))} }

// n is a number of 0 to n−1.
func (d *dice) n(n int) int {
	d.number++
	if d.rng != nil {
		v := d.rng.Uint32()
		d.tape = append(d.tape, v)
		return int(v % uint32(n))
	}
	if d.at == len(d.tape) {
		return n - 1
	}
	d.at++
	return int(d.tape[d.at-1] % uint32(n))
}

// chance is true in percent of a hundred cases.
func (d *dice) chance(percent int) bool { return d.n(100) < percent }

// pick is an element of list, which must not be empty.
func pick[T any](d *dice, list []T) T { return list[d.n(len(list))] }

// shrink makes a tape shorter while fails says that it still fails, with at most tries runs.
func shrink(tape []uint32, tries int, fails func(tape []uint32) bool) []uint32 {
	for size := len(tape) / 2; size > 0 && tries > 0; size /= 2 {
		for at := 0; at < len(tape) && tries > 0; tries-- {
			short := append(append([]uint32(nil), tape[:at]...), tape[min(at+size, len(tape)):]...)
			if fails(short) {
				tape = short
			} else {
				at += size
			}
		}
	}
	return tape
}
