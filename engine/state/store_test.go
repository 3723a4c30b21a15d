package state

import (
	"fmt"
	"testing"

	"kaas/engine/vfs"
)

func TestSmoke(t *testing.T) {
	fs := vfs.Memory()
	s, err := Open(fs, "/d/s", Options{FileBytes: 4096, CheckpointBytes: 8192})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		var b Batch
		b.Put([]byte(fmt.Sprintf("key-%04d", i%700)), []byte(fmt.Sprintf("v%d", i)))
		if err := s.Apply(&b, i%100 == 0); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("%+v\n", s.Stats())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = Open(fs, "/d/s", Options{FileBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%+v\n", s.Stats())
	n := 0
	s.Scan([]byte("key-"), func(k, v []byte) error { n++; return nil })
	v, ok, err := s.Get([]byte("key-0001"))
	fmt.Println(n, string(v), ok, err)
}
