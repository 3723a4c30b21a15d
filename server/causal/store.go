package causal

import (
	"slices"
	"strings"

	"kaas/engine/state"
)

// Writer takes the operations of a batch, in order; the last one on a key counts. It copies what it keeps. A state.Batch
// is one; so is whatever a host makes of it, to keep a changelog.
type Writer interface {
	Put(key, value []byte)
	Delete(key []byte)
}

// Store is where the state of a node lies.
type Store interface {
	// Get returns the value of key, which must stay as it is and may be kept; ok is false if there is none.
	Get(key []byte) (value []byte, ok bool, err error)
	// Scan calls fn in key order for all keys with the prefix, until it returns an error, which Scan returns. What fn gets
	// is valid during the call; fn may call Get.
	Scan(prefix []byte, fn func(key, value []byte) error) error
	// Write applies all that fill puts and deletes, or nothing, also over a crash. After an error it may be either; the node
	// is then discarded and made anew.
	Write(fill func(Writer)) error
}

// Engine is a Store in a state.Store. Values that Get reads are kept in the value cache of that store.
type Engine struct {
	*state.Store
	// Durable makes Write wait until a sync covers the batch. A host that can restore the store from a changelog does not
	// need that.
	Durable bool
	// Prefix is put before every key, so that several nodes may share a store.
	Prefix string

	batch state.Batch
	key   []byte
}

// Get is that of Store.
func (e *Engine) Get(key []byte) ([]byte, bool, error) {
	return e.Store.Get(e.prefixed(key))
}

// Scan is that of Store.
func (e *Engine) Scan(prefix []byte, fn func(key, value []byte) error) error {
	if e.Prefix == "" {
		return e.Store.Scan(prefix, fn)
	}
	return e.Store.Scan(append([]byte(e.Prefix), prefix...), func(key, value []byte) error {
		return fn(key[len(e.Prefix):], value)
	})
}

// Write is that of Store.
func (e *Engine) Write(fill func(Writer)) error {
	e.batch.Reset()
	if e.Prefix == "" {
		fill(&e.batch)
	} else {
		fill((*prefixing)(e))
	}
	return e.Store.Apply(&e.batch, e.Durable)
}

func (e *Engine) prefixed(key []byte) []byte {
	if e.Prefix == "" {
		return key
	}
	e.key = append(append(e.key[:0], e.Prefix...), key...)
	return e.key
}

// prefixing is an Engine as the Writer of its batch.
type prefixing Engine

func (p *prefixing) Put(key, value []byte) { p.batch.Put((*Engine)(p).prefixed(key), value) }

func (p *prefixing) Delete(key []byte) { p.batch.Delete((*Engine)(p).prefixed(key)) }

// Memory is a Store that lives as long as the process, for tests, simulations and embedding. The zero value is empty. Scan
// sorts all keys. A value that is put again lies where the one before lay, so a node that commits often allocates nothing.
type Memory struct{ values map[string]*memoryValue }

type memoryValue struct {
	bytes []byte
	kept  bool // somebody has it, so it must stay as it is
}

// Get is that of Store.
func (m *Memory) Get(key []byte) ([]byte, bool, error) {
	v := m.values[string(key)]
	if v == nil {
		return nil, false, nil
	}
	v.kept = true
	return v.bytes, true, nil
}

// Scan is that of Store.
func (m *Memory) Scan(prefix []byte, fn func(key, value []byte) error) error {
	var keys []string
	for k := range m.values {
		if strings.HasPrefix(k, string(prefix)) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if err := fn([]byte(k), m.values[k].bytes); err != nil {
			return err
		}
	}
	return nil
}

// Write is that of Store.
func (m *Memory) Write(fill func(Writer)) error {
	fill(m)
	return nil
}

// Put sets one value.
func (m *Memory) Put(key, value []byte) {
	v := m.values[string(key)]
	if v == nil {
		if m.values == nil {
			m.values = map[string]*memoryValue{}
		}
		v = &memoryValue{}
		m.values[string(key)] = v
	}
	if v.kept || v.bytes == nil || cap(v.bytes) > 4*len(value)+1024 {
		v.bytes, v.kept = make([]byte, 0, len(value)), false
	}
	v.bytes = append(v.bytes[:0], value...)
}

// Delete removes one value.
func (m *Memory) Delete(key []byte) { delete(m.values, string(key)) }

// Len is the number of keys.
func (m *Memory) Len() int { return len(m.values) }

// Clone is a copy that changes apart: what a crash would find, or what an aborted transaction goes back to.
func (m *Memory) Clone() *Memory {
	c := &Memory{values: make(map[string]*memoryValue, len(m.values))}
	for k, v := range m.values {
		v.kept = true
		c.values[k] = &memoryValue{v.bytes, true}
	}
	return c
}
