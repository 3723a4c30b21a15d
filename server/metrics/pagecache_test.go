package metrics

import "testing"

func TestParseIO(t *testing.T) {
	if n, ok := parseIO("rchar: 1\nread_bytes: 4096\nwrite_bytes: 7\n"); n != 4096 || !ok {
		t.Errorf("got %v, %v", n, ok)
	}
	for _, text := range []string{"", "read_bytes: x\n", "cancelled_write_bytes: 5\n"} {
		if n, ok := parseIO(text); ok {
			t.Errorf("%q: got %v", text, n)
		}
	}
	if _, ok := missedBytes(); !ok {
		t.Error("this kernel says nothing of its reads")
	}
}
