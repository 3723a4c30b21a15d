package simulate

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"

	"kaas/engine/state"
	"kaas/engine/vfs/crashfs"
	"kaas/server/causal"
)

// storage is where a host keeps the state of its node.
type storage interface {
	// open is the store as the next life finds it: all that was committed, and nothing else.
	open() (causal.Store, error)
	// commit writes what the node changed, and calls publish when the transaction that it belongs to is to end well. An error
	// means that the life is over, whether publish was called or not.
	commit(n *causal.Node, publish func()) error
	// crash is the end of a life without a commit.
	crash(d *dice)
	wipe()
}

// memoryStorage is a store that a crash leaves as the last commit made it.
type memoryStorage struct{ causal.Memory }

func (m *memoryStorage) open() (causal.Store, error) { return &m.Memory, nil }

func (m *memoryStorage) commit(n *causal.Node, publish func()) error {
	publish()
	return n.Commit(nil)
}

func (m *memoryStorage) crash(*dice) {}

func (m *memoryStorage) wipe() { m.Memory = causal.Memory{} }

// diskStorage is an engine store on a disk that loses power, and a changelog in the broker from which the store catches up: what a
// host keeps of a store is in the transaction, and the store itself follows it.
type diskStorage struct {
	disk      *crashfs.Disk
	engine    *causal.Engine
	changelog []operations // of every commit
	mirror    causal.Memory
	cuts      int
	cutting   bool
}

// operations are what one commit wrote.
type operations []operation

type operation struct {
	key, value []byte
	deletes    bool
}

func (o *operations) Put(key, value []byte) {
	*o = append(*o, operation{bytes.Clone(key), append([]byte{}, value...), false})
}

func (o *operations) Delete(key []byte) { *o = append(*o, operation{bytes.Clone(key), nil, true}) }

func (o operations) apply(w causal.Writer) {
	for _, p := range o {
		if p.deletes {
			w.Delete(p.key)
		} else {
			w.Put(p.key, p.value)
		}
	}
}

// reached is the key under which the store says how much of the changelog it has. It lies outside of what the node sees.
const (
	reachedKey = "reached"
	nodePrefix = "node/"
)

func (s *diskStorage) open() (causal.Store, error) {
	if s.disk == nil {
		s.disk = crashfs.NewBare()
	}
	store, err := state.Open(s.disk, "/s", state.Options{FileBytes: 4000, CheckpointBytes: 10000, CacheBytes: -1})
	if err != nil {
		return nil, err
	}
	s.engine = &causal.Engine{Store: store, Prefix: nodePrefix}
	v, ok, err := store.Get([]byte(reachedKey))
	if err != nil {
		return nil, err
	}
	from := 0
	if ok {
		if from, err = strconv.Atoi(string(v)); err != nil {
			return nil, err
		}
	}
	if from > len(s.changelog) {
		fail(wrongStore, "the store has %d commits of %d", from, len(s.changelog))
	}
	for i := from; i < len(s.changelog); i++ {
		if err := s.write(i, false); err != nil {
			return nil, err
		}
	}
	n := 0
	err = s.engine.Scan(nil, func(k, v []byte) error {
		n++
		if want, ok, _ := s.mirror.Get(k); !ok || !bytes.Equal(v, want) {
			fail(wrongStore, "%s is %x, not %x, after %d commits of which the disk had %d", k, v, want, len(s.changelog), from)
		}
		return nil
	})
	if err == nil && n != s.mirror.Len() {
		fail(wrongStore, "%d keys, not %d, after %d commits of which the disk had %d", n, s.mirror.Len(), len(s.changelog), from)
	}
	return s.engine, err
}

// write brings commit i of the changelog into the store.
func (s *diskStorage) write(i int, durable bool) error {
	var b state.Batch
	b.Put([]byte(reachedKey), strconv.AppendInt(nil, int64(i+1), 10))
	s.changelog[i].apply(prefixed{&b})
	return s.engine.Store.Apply(&b, durable)
}

type prefixed struct{ b *state.Batch }

func (p prefixed) Put(key, value []byte) { p.b.Put(append([]byte(nodePrefix), key...), value) }

func (p prefixed) Delete(key []byte) { p.b.Delete(append([]byte(nodePrefix), key...)) }

func (s *diskStorage) commit(n *causal.Node, publish func()) error {
	var o operations
	n.Flush(&o)
	o.apply(&s.mirror)
	s.changelog = append(s.changelog, o)
	publish()
	return s.write(len(s.changelog)-1, len(s.changelog)%3 == 0)
}

// cutSoon makes the power go after some more operations of the disk.
func (s *diskStorage) cutSoon(d *dice) {
	if s.disk != nil {
		s.cutting = true
		s.disk.CutAfter(int64(d.n(12)))
	}
}

// crash is a kill, which loses nothing of the disk, or a power cut.
func (s *diskStorage) crash(d *dice) {
	if s.disk == nil {
		return
	}
	s.disk.CutAfter(0) // whatever still runs does nothing any more
	if s.cutting || d.chance(50) {
		s.cuts++
		s.disk = s.disk.Crash(rand.New(rand.NewPCG(uint64(d.n(1<<30)), 1)))
	} else {
		s.disk = s.disk.Clone()
	}
	s.cutting = false
}

func (s *diskStorage) wipe() { *s = diskStorage{cuts: s.cuts} }

// powerless says whether a life ended because its disk lost power.
func powerless(err error) bool { return errors.Is(err, crashfs.ErrPower) }
