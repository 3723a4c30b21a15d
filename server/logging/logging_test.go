package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestLevelsFollowTheRootUntilSet(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, slog.LevelWarn)
	engine := l.Logger("kaas.engine")
	engine.Info("quiet")
	if out.Len() != 0 {
		t.Fatalf("logged below the level: %q", out.String())
	}
	l.Set(Root, "INFO")
	engine.Info("told")
	if got := out.String(); !strings.Contains(got, "told") || !strings.Contains(got, "logger=kaas.engine") {
		t.Fatalf("got %q", got)
	}
	l.Set("kaas.engine", "ERROR")
	out.Reset()
	engine.Warn("quiet again")
	if out.Len() != 0 {
		t.Fatalf("logged below the logger's own level: %q", out.String())
	}
	if level, own, ok := l.Get("kaas.engine"); level != "ERROR" || !own || !ok {
		t.Fatalf("Get = %q %v %v", level, own, ok)
	}
	l.Unset("kaas.engine")
	if level, own, _ := l.Get("kaas.engine"); level != "INFO" || own {
		t.Fatalf("after Unset: %q %v", level, own)
	}
	l.Unset(Root)
	if level, _, _ := l.Get(Root); level != "INFO" {
		t.Fatalf("the root lost its level: %q", level)
	}
	if _, _, ok := l.Get("no.such"); ok {
		t.Fatal("an unknown logger was found")
	}
}
