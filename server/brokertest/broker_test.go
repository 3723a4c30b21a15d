package brokertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script makes a program that stands for the broker; $3 is the address it is told to listen on.
func script(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "broker")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

const (
	ready = `echo '{"listeners":{"PLAINTEXT":"'$3'"},"clusterId":"c","nodeId":1,"durability":"group-commit","storage":"disk","dataDir":"d","startMs":7}'` + "\n"
	idle  = "while :; do sleep 0.02; done\n"
)

func wantError(t *testing.T, what string, err error, part string) {
	t.Helper()
	if part == "" && err != nil || part != "" && (err == nil || !strings.Contains(err.Error(), part)) {
		t.Errorf("%s: want an error with %q, got %v", what, part, err)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, fault string }{
		"ready":         {ready + idle, ""},
		"refuses":       {"echo no such key >&2; exit 1\n", "no such key"},
		"no JSON":       {"echo hello\n" + idle, `ready line "hello\n"`},
		"other address": {`echo '{"listeners":{"PLAINTEXT":"127.0.0.1:1"}}'` + "\n" + idle, "want PLAINTEXT at 127.0.0.1:"},
	} {
		b, err := Start(script(t, c.text), "--x")
		wantError(t, name, err, c.fault)
		if err == nil {
			if r := b.Ready; r.NodeID != 1 || r.ClusterID != "c" || r.Durability != "group-commit" || r.Storage != "disk" || r.DataDir != "d" || r.StartMs != 7 {
				t.Errorf("%s: ready line read as %+v", name, r)
			}
			wantError(t, name, b.Kill(), "")
		}
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, stop, kill string }{
		"in good order":   {"trap 'exit 0' TERM\n" + ready + idle, "", ""},
		"wrong status":    {"trap 'exit 3' TERM\n" + ready + idle, "exit status 3", ""},
		"no handler":      {ready + idle, "signal: terminated", ""},
		"panic seen":      {"trap 'exit 0' TERM\necho 'panic: x' >&2\n" + ready + idle, "panic: x", "panic: x"},
		"data race seen":  {"trap 'exit 0' TERM\necho 'WARNING: DATA RACE' >&2\n" + ready + idle, "DATA RACE", "DATA RACE"},
		"ended by itself": {ready + "echo gone >&2; exit 0\n", "", "before it was killed"},
	} {
		for _, how := range []string{"stop", "kill"} {
			b, err := Start(script(t, c.text))
			if err != nil {
				t.Fatal(err)
			}
			if how == "kill" {
				if name == "ended by itself" { // let it end
					b.exited <- <-b.exited
				}
				wantError(t, name+", kill", b.Kill(), c.kill)
			} else if name != "ended by itself" {
				wantError(t, name+", stop", b.Stop(), c.stop)
			}
		}
	}
}

func TestRestartKeepsTheAddress(t *testing.T) {
	t.Parallel()
	b, err := Start(script(t, "trap 'exit 0' TERM\n"+ready+idle))
	if err != nil {
		t.Fatal(err)
	}
	addr, pid := b.Addr, b.PID()
	for _, kill := range []bool{false, true} {
		if err := b.Restart(kill); err != nil {
			t.Fatal(err)
		}
		if b.Addr != addr || b.Ready.Listeners["PLAINTEXT"] != addr || b.PID() == pid {
			t.Errorf("kill=%v: address %s, ready %v, pid %d; before %s and %d", kill, b.Addr, b.Ready.Listeners, b.PID(), addr, pid)
		}
		pid = b.PID()
	}
	wantError(t, "stop", b.Stop(), "")
}

func TestTailKeepsTheEnd(t *testing.T) {
	var w tail
	for range 3 {
		if n, err := w.Write([]byte(strings.Repeat("x", keptStderr))); n != keptStderr || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := w.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	if s := w.String(); len(s) != keptStderr || !strings.HasSuffix(s, "xend") {
		t.Errorf("kept %d bytes, ending in %q", len(s), s[len(s)-4:])
	}
}
