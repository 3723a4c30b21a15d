package fetchsession

import "testing"

func keys(s *Session) (out []int32) {
	s.Each(func(p *Partition) { out = append(out, p.Key.Partition) })
	return out
}

func equal(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func part(i int32) Partition { return Partition{Key: Key{Topic: "t", Partition: i}, MaxBytes: 100} }

func TestPartitionsTakeTurns(t *testing.T) {
	s := NewCache(1).Create(0, false, 3)
	for i := range int32(3) {
		s.Set(part(i))
	}
	s.ToEnd(Key{Topic: "t", Partition: 0})
	if got := keys(s); !equal(got, []int32{1, 2, 0}) {
		t.Fatalf("after data in 0: %v", got)
	}
	p := part(1)
	p.FetchOffset = 7
	if s.Set(p).FetchOffset != 7 || s.Len() != 3 {
		t.Fatalf("an update: %d partitions", s.Len())
	}
	s.Forget(Key{Topic: "t", Partition: 2})
	s.Forget(Key{Topic: "t", Partition: 9})
	if got := keys(s); !equal(got, []int32{1, 0}) {
		t.Fatalf("after forgetting 2: %v", got)
	}
}

func TestToldOnlyWhatChanged(t *testing.T) {
	s := NewCache(1).Create(0, false, 1)
	p := s.Set(part(0))
	for i, c := range []struct {
		hw, start          int64
		failed, data, want bool
	}{
		{0, 0, false, false, true},  // never told
		{0, 0, false, false, false}, // nothing new
		{5, 0, false, false, true},  // high watermark moved
		{5, 3, false, false, true},  // log start moved
		{5, 3, false, true, true},   // data
		{5, 3, false, false, false}, // nothing new
		{-1, -1, true, false, true}, // an error is told each time
		{-1, -1, true, false, true}, //
		{5, 3, false, false, true},  // and its end
		{5, 3, false, false, false},
	} {
		if got := p.Told(c.hw, c.start, c.failed, c.data); got != c.want {
			t.Errorf("step %d: told = %v", i, got)
		}
	}
}

func TestUseChecksEpochAndNaming(t *testing.T) {
	c := NewCache(10)
	s := c.Create(0, true, 1)
	use := func(id, epoch int32, byID bool) Problem {
		got, problem := c.Use(id, epoch, byID, 1)
		if got != nil {
			got.Unlock()
		}
		return problem
	}
	if p := use(s.ID+1, 1, true); p != NotFound {
		t.Errorf("another id: %v", p)
	}
	if p := use(s.ID, 2, true); p != WrongEpoch {
		t.Errorf("epoch ahead: %v", p)
	}
	if p := use(s.ID, 1, false); p != TopicIDMixed {
		t.Errorf("by name: %v", p)
	}
	if p := use(s.ID, 1, true); p != OK {
		t.Errorf("right: %v", p)
	}
	s.Advance()
	if p := use(s.ID, 1, true); p != WrongEpoch {
		t.Errorf("epoch repeated: %v", p)
	}
	if p := use(s.ID, 2, true); p != OK {
		t.Errorf("next epoch: %v", p)
	}
	s.epoch = 1<<31 - 1
	s.Advance()
	if s.epoch != 1 {
		t.Errorf("the epoch wraps to %d, want 1", s.epoch)
	}
	c.Remove(s.ID)
	if p := use(s.ID, 1, true); p != NotFound {
		t.Errorf("removed: %v", p)
	}
}

// Regression 41: bounded, eviction by last use, nobody younger than 120 s goes, and the answer is then "no session".
func TestEviction(t *testing.T) {
	c := NewCache(2)
	a, b := c.Create(0, false, 5), c.Create(10, false, 5)
	if s := c.Create(MinEvictionMs, false, 5); s != nil {
		t.Fatal("a session used 120 s ago was evicted")
	}
	if s, p := c.Use(a.ID, 1, false, MinEvictionMs); p == OK {
		s.Unlock()
	}
	s := c.Create(MinEvictionMs+11, false, 5) // b is the one unused for longer
	if s == nil {
		t.Fatal("no session was evicted")
	}
	if _, p := c.Use(b.ID, 1, false, MinEvictionMs+12); p != NotFound {
		t.Errorf("the longest unused session: %v", p)
	}
	if c.Len() != 2 {
		t.Errorf("%d sessions", c.Len())
	}
	// A larger one takes the place of a smaller one made long ago, although that is in use.
	if got := c.Create(MinEvictionMs+13, false, 5); got != nil {
		t.Error("evicted for a session that is not larger")
	}
	if got := c.Create(MinEvictionMs+13, false, 6); got == nil {
		t.Error("not evicted for a larger session")
	}
	if _, p := c.Use(a.ID, 1, false, MinEvictionMs+14); p != NotFound {
		t.Errorf("the smaller, older session: %v", p)
	}
}

func TestIDsArePositiveAndDiffer(t *testing.T) {
	c := NewCache(1000)
	seen := map[int32]bool{}
	for range 1000 {
		s := c.Create(0, false, 1)
		if s.ID <= 0 || seen[s.ID] {
			t.Fatalf("id %d", s.ID)
		}
		seen[s.ID] = true
	}
}
