package topics

import (
	"strings"
	"testing"

	"kaas/codec/api"
)

func TestCheckName(t *testing.T) {
	for name, legal := range map[string]bool{
		"a": true, "A.b_c-9": true, "...": true, strings.Repeat("x", 249): true, "__mine": true,
		"": false, ".": false, "..": false, strings.Repeat("x", 250): false, "a b": false, "a/b": false, "ä": false, "a\x00b": false,
	} {
		err := CheckName(name)
		if (err == nil) != legal {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
		if err != nil && err.Code != api.ErrInvalidTopicException {
			t.Errorf("CheckName(%q): code %v", name, err.Code)
		}
	}
}
