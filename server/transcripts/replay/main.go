// Command replay plays the scripts of server/transcripts against a broker that already runs, or records its answers.
//
//	go run ./server/transcripts/replay -broker 127.0.0.1:9092 server/transcripts/testdata
//
// Exit status 0: all passed; 1: something differed, or nothing was run; 2: no broker, or a file cannot be read.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"kaas/server/transcripts"
)

type options struct {
	broker             transcripts.Broker
	only, skip         *regexp.Regexp
	restart, out       string
	verbose            bool
	jobs               int
	pass, fail, missed map[string]int // by area
	bad                []string
	mu                 sync.Mutex // guards the counts and bad
}

func pattern(into **regexp.Regexp) func(string) error {
	return func(s string) (err error) {
		*into, err = regexp.Compile(s)
		return err
	}
}

func main() {
	o := &options{pass: map[string]int{}, fail: map[string]int{}, missed: map[string]int{}}
	var lacks string
	flag.StringVar(&o.broker.Plain, "broker", "127.0.0.1:9092", "plaintext `address`")
	flag.StringVar(&o.broker.SASL, "sasl", "", "SASL_PLAINTEXT `address` (scenarios that need it are skipped without)")
	flag.StringVar(&o.broker.SASLShort, "sasl-short", "", "`address` of a SASL_PLAINTEXT listener with connections.max.reauth.ms=2500")
	flag.StringVar(&o.restart, "restart", "", "shell `command` that restarts the broker and returns when it is up")
	flag.StringVar(&lacks, "lacks", "", "comma separated `needs` that the broker does not meet")
	flag.Func("run", "`regexp` on scenario names", pattern(&o.only))
	flag.Func("skip", "`regexp` on scenario names to leave out", pattern(&o.skip))
	flag.StringVar(&o.out, "record", "", "write the answers of this broker into `directory` instead of comparing")
	flag.BoolVar(&o.verbose, "v", false, "name passing and skipped scenarios too")
	flag.IntVar(&o.jobs, "j", 4, "scenarios at once")
	flag.Parse()
	if lacks != "" {
		o.broker.Lacks = strings.Split(lacks, ",")
	}
	if o.restart != "" {
		o.broker.Restart = o.runRestart
		o.broker.Settle = 1500 * time.Millisecond
	}
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: replay [flags] FILE-OR-DIRECTORY...")
		os.Exit(2)
	}
	all, err := transcripts.Load(flag.Args()...)
	if err == nil {
		err = o.broker.Connect()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	o.playAll(all)
	if !o.report() {
		os.Exit(1)
	}
}

func (o *options) runRestart() error {
	if out, err := exec.Command("sh", "-c", o.restart).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// playAll runs what may share the broker first, then the rest one by one.
func (o *options) playAll(all []*transcripts.Scenario) {
	var alone []*transcripts.Scenario
	queue := make(chan *transcripts.Scenario)
	var wg sync.WaitGroup
	for range max(o.jobs, 1) {
		wg.Go(func() {
			for sc := range queue {
				o.play(sc)
			}
		})
	}
	for _, sc := range all {
		if o.only != nil && !o.only.MatchString(sc.Name) || o.skip != nil && o.skip.MatchString(sc.Name) {
			continue
		}
		if sc.Exclusive {
			alone = append(alone, sc)
		} else {
			queue <- sc
		}
	}
	close(queue)
	wg.Wait()
	for _, sc := range alone {
		o.play(sc)
	}
}

func (o *options) play(sc *transcripts.Scenario) {
	if why := o.broker.Missing(sc); why != "" {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.missed[sc.Area]++
		if o.verbose {
			fmt.Printf("SKIP %s (needs %s)\n", sc.Name, why)
		}
		return
	}
	start := time.Now()
	var faults string
	if o.out == "" {
		faults = o.broker.Play(sc)
	} else if err := o.broker.Record(sc, o.out); err != nil {
		faults = err.Error()
	}
	took := time.Since(start).Milliseconds()
	o.mu.Lock()
	defer o.mu.Unlock()
	if faults == "" {
		o.pass[sc.Area]++
		if o.verbose {
			fmt.Printf("ok   %s (%d ms)\n", sc.Name, took)
		}
		return
	}
	o.fail[sc.Area]++
	o.bad = append(o.bad, sc.Name)
	fmt.Printf("FAIL %s\n     settles: %s\n     %s\n", sc.Name, sc.Settles, strings.ReplaceAll(strings.TrimSpace(faults), "\n", "\n     "))
}

// report prints the table and says whether something was run and all of it passed.
func (o *options) report() bool {
	areas := map[string]bool{}
	for _, m := range []map[string]int{o.pass, o.fail, o.missed} {
		for a := range m {
			areas[a] = true
		}
	}
	passed := 0
	names := make([]string, 0, len(areas))
	for a := range areas {
		names = append(names, a)
	}
	slices.Sort(names)
	for _, a := range names {
		passed += o.pass[a]
		fmt.Printf("%-14s %3d pass %3d fail %3d skipped\n", a, o.pass[a], o.fail[a], o.missed[a])
	}
	if len(o.bad) > 0 {
		slices.Sort(o.bad)
		fmt.Println("failed:", strings.Join(o.bad, " "))
	}
	return passed > 0 && len(o.bad) == 0
}
