package logtool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kaas/cmd/kaas/cli"
	"kaas/engine/segment"
)

const epochsName = "leader-epoch-checkpoint"

// kinds are the files that can be dumped, by suffix or whole name.
var kinds = map[string]func(d *dump, path string, base int64) error{
	segment.LogSuffix:       (*dump).log,
	segment.IndexSuffix:     (*dump).offsetIndex,
	segment.TimeIndexSuffix: (*dump).timeIndex,
	segment.TxnIndexSuffix:  (*dump).txnIndex,
	segment.SnapshotSuffix:  (*dump).snapshot,
	epochsName:              (*dump).epochs,
}

// dump is one run of the command.
type dump struct {
	*output
	records bool
	groups  bool // records of __consumer_offsets are decoded
}

func dumpCommand() *cobra.Command {
	var asJSON, records, groups bool
	c := &cobra.Command{
		Use:   "dump FILE...",
		Short: "Print what is in the files of a partition",
		Long: `Print what is in the files of a partition: the batches of a .log (with --records their records too, with
--offsets-decoder those of __consumer_offsets decoded), the entries of an .index, .timeindex and .txnindex, the producers of a
.snapshot, the epochs of a leader-epoch-checkpoint.

Files are only read. A batch whose CRC does not match is printed with the flag BAD-CRC; where no whole batch follows, the
rest of the file is passed over. Zeros at the end are space that the broker allocated ahead, not damage. Every problem is
told with file and position, and then the exit code is 1. A broker that runs may be writing the end of the newest file.

With --json every line is one object, its field "type" says what: batch, record, controlRecord, offsetCommit, groupMetadata,
offsetIndexEntry, timeIndexEntry, abortedTransaction, producer, leaderEpoch, problem, end. Keys, values and headers that are
no UTF-8 stand in base64, in keyBase64 and valueBase64. Timestamps are milliseconds since 1970.`,
		Example: `  kaas log dump data/orders-0/00000000000000000000.log
  kaas log dump --records --json data/orders-0/*.log | jq -r 'select(.type == "record") | .value'
  kaas log dump --offsets-decoder data/__consumer_offsets-*/*.log
  kaas log dump data/orders-0/*.index data/orders-0/*.snapshot`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			d := &dump{output: newOutput(c.OutOrStdout(), asJSON), records: records, groups: groups}
			return d.run(files)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	c.Flags().BoolVar(&records, "records", false, "print the records of batches: offset, timestamp, key, value, headers")
	c.Flags().BoolVar(&groups, "offsets-decoder", false, "print the records of __consumer_offsets decoded: committed offsets, groups and their members")
	return c
}

func (d *dump) run(files []string) error {
	for _, path := range files {
		if _, _, err := kindOf(path); err != nil {
			return err
		}
	}
	var failed error
	for i, path := range files {
		if i > 0 {
			d.text("")
		}
		d.text("%s", path)
		show, base, _ := kindOf(path)
		if err := show(d, path, base); err != nil {
			failed = errors.Join(failed, err)
			d.text("cannot be read: %v", err)
		}
	}
	if err := d.flush(); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return found(d.problems)
}

// found is the error of a run that told problems.
func found(problems int) error {
	switch problems {
	case 0:
		return nil
	case 1:
		return errors.New("1 problem found")
	}
	return fmt.Errorf("%d problems found", problems)
}

// kindOf finds out by its name how to read a file. A name that does not state a base offset is taken for one of offset 0.
func kindOf(path string) (show func(d *dump, path string, base int64) error, base int64, err error) {
	name := filepath.Base(path)
	kind := filepath.Ext(name)
	if b, suffix, ok := segment.ParseName(name); ok {
		base, kind = b, suffix
	} else if name == epochsName {
		kind = name
	}
	show, ok := kinds[kind]
	if !ok {
		return nil, 0, cli.Usagef("%s: not a .log, .index, .timeindex, .txnindex, .snapshot or %s", path, epochsName)
	}
	return show, base, nil
}

// end closes the part of a file: JSON readers learn that nothing is missing.
type endObject struct {
	Type    string `json:"type"`
	File    string `json:"file"`
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"` // of the entries
	Spare   int64  `json:"spareBytes"`
}

func (d *dump) end(path string, what string, entries int, size, spare int64) {
	note := ""
	if spare > 0 {
		note = fmt.Sprintf(", %d bytes allocated ahead", spare)
	}
	d.text("%d %s, %d bytes%s", entries, what, size-spare, note)
	d.object(endObject{"end", path, entries, size - spare, spare})
}

type offsetObject struct {
	Type     string `json:"type"`
	File     string `json:"file"`
	Offset   int64  `json:"offset"`
	Position int64  `json:"position"`
}

func (d *dump) offsetIndex(path string, base int64) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list, spare := offsetEntries(path, base, b, d.report)
	t := d.columns([]int{20}, "OFFSET", "POSITION")
	for _, e := range list {
		t.row(number(e.offset), number(e.position))
		d.object(offsetObject{"offsetIndexEntry", path, e.offset, e.position})
	}
	d.end(path, "entries", len(list), int64(len(b)), int64(spare))
	return nil
}

type timeObject struct {
	Type      string `json:"type"`
	File      string `json:"file"`
	Timestamp int64  `json:"timestamp"`
	Offset    int64  `json:"offset"`
}

func (d *dump) timeIndex(path string, base int64) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list, spare := timeEntries(path, base, b, d.report)
	t := d.columns([]int{24}, "TIMESTAMP", "OFFSET")
	for _, e := range list {
		t.row(clock(e.timestamp), number(e.offset))
		d.object(timeObject{"timeIndexEntry", path, e.timestamp, e.offset})
	}
	d.end(path, "entries", len(list), int64(len(b)), int64(spare))
	return nil
}

type txnObject struct {
	Type       string `json:"type"`
	File       string `json:"file"`
	ProducerID int64  `json:"producerId"`
	First      int64  `json:"firstOffset"`
	Last       int64  `json:"lastOffset"`
	LastStable int64  `json:"lastStableOffset"`
}

func (d *dump) txnIndex(path string, _ int64) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list := txnEntries(path, b, d.report)
	t := d.columns([]int{20, 20, 20}, "PRODUCER", "FIRST", "LAST", "LAST-STABLE")
	for _, e := range list {
		t.row(number(e.producerID), number(e.first), number(e.last), number(e.lastStable))
		d.object(txnObject{"abortedTransaction", path, e.producerID, e.first, e.last, e.lastStable})
	}
	d.end(path, "aborted transactions", len(list), int64(len(b)), 0)
	return nil
}

type producerObject struct {
	Type             string `json:"type"`
	File             string `json:"file"`
	ProducerID       int64  `json:"producerId"`
	ProducerEpoch    int16  `json:"producerEpoch"`
	CoordinatorEpoch int32  `json:"coordinatorEpoch"`
	FirstSequence    int32  `json:"firstSequence"`
	LastSequence     int32  `json:"lastSequence"`
	LastOffset       int64  `json:"lastOffset"`
	LastTimestamp    int64  `json:"lastTimestamp"`
	OpenTransaction  int64  `json:"openTransactionFirstOffset"`
}

func (d *dump) snapshot(path string, _ int64) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list, problem := producers(path, b)
	if problem != nil {
		d.report(problem)
		return nil
	}
	t := d.columns([]int{20, 6, 12, 20, 24, 12}, "PRODUCER", "EPOCH", "SEQUENCES", "LAST-OFFSET", "LAST-TIMESTAMP", "COORDINATOR", "OPEN-TRANSACTION")
	for _, p := range list {
		o := producerObject{"producer", path, p.id, p.state.Epoch, p.state.CoordinatorEpoch, -1, -1, -1, p.state.LastTimestamp, p.state.TxnFirst}
		seqs, offset, open := "-", "-", "-"
		if l := p.last; l != nil {
			o.LastSequence, o.LastOffset = l.LastSequence, l.LastOffset
			o.FirstSequence = firstSequence(l.LastSequence, l.Delta)
			seqs, offset = span(int64(o.FirstSequence), int64(o.LastSequence)), number(l.LastOffset)
		}
		if p.state.TxnFirst >= 0 {
			open = number(p.state.TxnFirst)
		}
		t.row(number(p.id), number(int64(p.state.Epoch)), seqs, offset, clock(p.state.LastTimestamp), number(int64(p.state.CoordinatorEpoch)), open)
		d.object(o)
	}
	d.end(path, "producers", len(list), int64(len(b)), 0)
	return nil
}

// firstSequence counts back from the last one of a batch. Sequences begin again at 0 after the greatest int32.
func firstSequence(last, delta int32) int32 { return (last - delta) & (1<<31 - 1) }

type epochObject struct {
	Type  string `json:"type"`
	File  string `json:"file"`
	Epoch int32  `json:"epoch"`
	Start int64  `json:"startOffset"`
}

func (d *dump) epochs(path string, _ int64) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	list, problem := epochEntries(path, b)
	t := d.columns([]int{12}, "EPOCH", "START-OFFSET")
	for _, e := range list {
		t.row(number(int64(e.epoch)), number(e.start))
		d.object(epochObject{"leaderEpoch", path, e.epoch, e.start})
	}
	if problem != nil {
		d.report(problem)
	}
	d.end(path, "epochs", len(list), int64(len(b)), 0)
	return nil
}

// log prints the batches of a segment.
func (d *dump) log(path string, _ int64) error {
	r, closeFile, err := openBatches(path)
	if err != nil {
		return err
	}
	defer closeFile()
	p := newBatchPrinter(d, path)
	for {
		v, pos, err := r.next()
		var problem *Problem
		switch {
		case err == nil:
			p.batch(v, pos)
			continue
		case errors.As(err, &problem):
			d.report(problem)
		case err != io.EOF:
			return err
		}
		break
	}
	p.end(r)
	return nil
}
