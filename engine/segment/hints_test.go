package segment

import "testing"

func TestHints(t *testing.T) {
	var h hints
	if _, ok := h.find(0); ok {
		t.Error("found in nothing")
	}
	h.put(7, 700)
	if pos, ok := h.find(7); pos != 700 || !ok {
		t.Errorf("got %d, %v", pos, ok)
	}
	if _, ok := h.find(8); ok {
		t.Error("found another offset")
	}
	h.reset()
	if _, ok := h.find(7); ok {
		t.Error("found after a reset")
	}
}
