package crashfs

import (
	"maps"
	"runtime"
	"slices"
	"strconv"

	"kaas/engine/vfs"
)

// node is a file or a directory, whatever names it has. Disk.mu guards all of it.
type node struct {
	// Of a file: what readers see, what the last syncs made durable, and the changes between, in order. The bytes may be those of other
	// disks or of each other until they are changed.
	data, synced blob
	pending      []change
	mirror       vfs.File // memfd with the same content, once a map or a descriptor was asked for

	// Of a directory, likewise.
	dir            bool
	names, durable map[string]*node
	edits          []edit
}

// change is a write, or with data nil a change of size.
type change struct {
	seq  int64
	off  int64 // of a change of size: the new size
	data []byte
	grow bool // a change of size that never cuts
	lost bool // a sync of it failed: no later one makes it durable
	kept bool // it is durable, and waits here because a lost one comes before it
}

// edit gives a name to a node, and takes away the other names of that node in the directory; with node nil it removes a name.
type edit struct {
	seq  int64
	name string
	node *node
}

// blob is bytes that are copied before the first change, and only then: a clone of a disk costs nothing for what stays.
type blob struct {
	b   []byte
	own bool
}

// share is the same content for another node; each copies it before a change.
func (c *blob) share() blob {
	c.own = false
	return blob{b: c.b}
}

// put makes a change of it.
func (c *blob) put(ch *change) {
	if !c.own {
		c.b, c.own = append(make([]byte, 0, len(c.b)+len(ch.data)), c.b...), true
	}
	c.b = ch.apply(c.b)
}

func newDir() *node {
	return &node{dir: true, names: map[string]*node{}, durable: map[string]*node{}}
}

func (e *edit) apply(names map[string]*node) {
	if e.node == nil {
		delete(names, e.name)
		return
	}
	maps.DeleteFunc(names, func(_ string, n *node) bool { return n == e.node })
	names[e.name] = e.node
}

func (n *node) edit(e edit) {
	e.apply(n.names)
	n.edits = append(n.edits, e)
}

// settleNames makes durable the edits up to seq.
func (n *node) settleNames(seq int64) {
	keep := n.edits[:0]
	for _, e := range n.edits {
		if e.seq <= seq {
			e.apply(n.durable)
		} else {
			keep = append(keep, e)
		}
	}
	clear(n.edits[len(keep):])
	n.edits = keep
}

func resize(b []byte, n int64) []byte {
	old := int64(len(b))
	if old >= n {
		return b[:n]
	}
	b = slices.Grow(b, int(n-old))[:n]
	clear(b[old:]) // what was cut off before must not come back
	return b
}

func splice(b []byte, off int64, p []byte) []byte {
	if len(p) == 0 {
		return b
	}
	b = resize(b, max(int64(len(b)), off+int64(len(p))))
	copy(b[off:], p)
	return b
}

func (c *change) apply(b []byte) []byte {
	switch {
	case c.data != nil:
		return splice(b, c.off, c.data)
	case c.grow:
		return resize(b, max(int64(len(b)), c.off))
	default:
		return resize(b, c.off)
	}
}

// fit cuts a change to what grows the file by room at most, as a file system does that takes block by block; false if it had to.
func (n *node) fit(c *change, room int64) bool {
	have := int64(len(n.data.b))
	end := c.off + int64(len(c.data))
	if end-have <= room || c.data == nil && !c.grow {
		return true
	}
	if c.data == nil {
		c.off = have + room
	} else {
		c.data = c.data[:max(0, have+room-c.off)]
	}
	return false
}

// change makes a change that is to be seen but not durable.
func (n *node) change(c change) error {
	n.data.put(&c)
	n.pending = append(n.pending, c)
	if n.mirror == nil {
		return nil
	}
	if c.data != nil {
		_, err := n.mirror.WriteAt(c.data, c.off)
		return err
	}
	return n.mirror.Truncate(int64(len(n.data.b)))
}

// settle makes durable the changes up to seq, save for those that a failed sync has lost.
func (n *node) settle(seq int64) {
	keep := n.pending[:0]
	for _, c := range n.pending {
		switch {
		case c.seq > seq || c.lost:
			keep = append(keep, c)
		case len(keep) > 0: // they are applied in order
			c.kept = true
			keep = append(keep, c)
		default:
			n.synced.put(&c)
		}
	}
	clear(n.pending[len(keep):])
	n.pending = keep
}

// failSync takes the changes so far for lost.
func (n *node) failSync() {
	for i := range n.pending {
		n.pending[i].lost = true
	}
}

// every visits all nodes that have names below n, n too.
func (n *node) every(f func(n *node)) {
	f(n)
	for _, c := range n.names {
		c.every(f)
	}
}

// share makes the mirror. It goes with the node.
func (d *Disk) share(n *node) (vfs.File, error) {
	if n.mirror != nil {
		return n.mirror, nil
	}
	d.links++
	name := "/" + strconv.Itoa(d.links)
	f, err := d.mirrors.Open(name, vfs.CreateNew)
	if err != nil {
		return nil, err
	}
	if err := d.mirrors.Remove(name); err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(n.data.b, 0); err != nil {
		return nil, err
	}
	runtime.AddCleanup(n, func(f vfs.File) { f.Close() }, f)
	n.mirror = f
	return f, nil
}

// walk visits all files below n in order.
func (n *node) walk(name string, f func(name string, n *node)) {
	if !n.dir {
		f(name, n)
		return
	}
	for _, base := range slices.Sorted(maps.Keys(n.names)) {
		n.names[base].walk(name+"/"+base, f)
	}
}

func (n *node) used() (sum int64) {
	n.walk("", func(_ string, n *node) { sum += int64(len(n.data.b)) })
	return sum
}
