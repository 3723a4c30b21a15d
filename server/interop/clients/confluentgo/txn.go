package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// writer is a transactional producer.
type writer struct{ p *kafka.Producer }

func open(ctx context.Context, bootstrap, id string) (*writer, error) {
	p, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": bootstrap, "transactional.id": id, "linger.ms": 0})
	if err != nil {
		return nil, err
	}
	go func() {
		for range p.Events() {
		}
	}()
	return &writer{p}, p.InitTransactions(ctx)
}

// put writes values within a transaction, and waits until each is there.
func (w *writer) put(topic string, values ...string) error {
	told := make(chan kafka.Event, len(values))
	for i, v := range values {
		m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: int32(i % 4)}, Value: []byte(v)}
		if err := w.p.Produce(m, told); err != nil {
			return err
		}
	}
	for range values {
		if m, is := (<-told).(*kafka.Message); is && m.TopicPartition.Error != nil {
			return m.TopicPartition.Error
		}
	}
	return nil
}

// numbered are ten values.
func numbered(prefix string) (list []string) {
	for i := range 10 {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}

// txn commits, aborts, copies with offsets, and is fenced; then it reads what all of that left.
func txn(args []string) error {
	bootstrap, in, out := args[0], args[1], args[2]
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	w, err := open(ctx, bootstrap, "go-"+out)
	if err != nil {
		return err
	}
	if err := w.transaction(func() error { return w.put(out, numbered("kept")...) }, func() error { return w.p.CommitTransaction(ctx) }); err != nil {
		return err
	}
	if err := w.transaction(func() error { return w.put(out, numbered("aborted")...) }, func() error { return w.p.AbortTransaction(ctx) }); err != nil {
		return err
	}
	if err := copied(ctx, w, bootstrap, in, out); err != nil {
		return err
	}
	if err := fenced(ctx, w, bootstrap, out); err != nil {
		return err
	}
	for _, level := range []string{"read_committed", "read_uncommitted"} {
		if err := seen(bootstrap, out, level); err != nil {
			return err
		}
	}
	return nil
}

// transaction begins one, does something in it, and ends it.
func (w *writer) transaction(do, end func() error) error {
	if err := w.p.BeginTransaction(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return end()
}

// copied reads a topic in a group and writes it to another with its offsets, once aborted and then committed.
func copied(ctx context.Context, w *writer, bootstrap, in, out string) error {
	m, err := join(bootstrap, in, "go-"+in, kafka.ConfigMap{"isolation.level": "read_committed"})
	if err != nil {
		return err
	}
	got, err := m.read(40)
	if err != nil {
		return err
	}
	all, err := m.c.Assignment()
	if err != nil {
		return err
	}
	positions, err := m.c.Position(all)
	if err != nil {
		return err
	}
	member, err := m.c.GetConsumerGroupMetadata()
	if err != nil {
		return err
	}
	for _, commit := range []bool{false, true} {
		var values []string
		for _, r := range got {
			values = append(values, fmt.Sprintf("copy-%v-%s", commit, r.Value))
		}
		end := w.p.AbortTransaction
		if commit {
			end = w.p.CommitTransaction
		}
		err := w.transaction(func() error {
			if err := w.put(out, values...); err != nil {
				return err
			}
			return w.p.SendOffsetsToTransaction(ctx, positions, member)
		}, func() error { return end(ctx) })
		if err != nil {
			return err
		}
		committed, err := m.c.Committed(all, int(timeout.Milliseconds()))
		if err != nil {
			return err
		}
		for i := range committed {
			committed[i].Offset = max(committed[i].Offset, -1) // -1001: none
		}
		fmt.Println("copied", len(values), "commit", commit, "offsets", offsets(committed))
	}
	return m.c.Close()
}

// fenced has a second producer take the transactional id while the first one is in a transaction.
func fenced(ctx context.Context, w *writer, bootstrap, out string) error {
	if err := w.p.BeginTransaction(); err != nil {
		return err
	}
	if err := w.put(out, numbered("torn")...); err != nil {
		return err
	}
	next, err := open(ctx, bootstrap, "go-"+out)
	if err != nil {
		return err
	}
	err = w.p.CommitTransaction(ctx)
	var told kafka.Error
	if !errors.As(err, &told) {
		return fmt.Errorf("commit of a fenced producer: %w", err)
	}
	fmt.Println("fenced", told.Code() == kafka.ErrFenced, "fatal", told.IsFatal())
	if err := next.transaction(func() error { return next.put(out, numbered("after")...) }, func() error { return next.p.CommitTransaction(ctx) }); err != nil {
		return err
	}
	next.p.Close()
	w.p.Close()
	return nil
}

// seen prints how many records of each kind there are at an isolation level, of how many distinct values.
func seen(bootstrap, topic, level string) error {
	c, err := kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": level, "enable.partition.eof": true,
		"auto.offset.reset": "error", "fetch.wait.max.ms": 20, "enable.auto.commit": false})
	if err != nil {
		return err
	}
	var all []kafka.TopicPartition
	for p := range int32(4) {
		all = append(all, kafka.TopicPartition{Topic: &topic, Partition: p, Offset: 0})
	}
	if err := c.Assign(all); err != nil {
		return err
	}
	kinds, values := map[string]int{}, map[string]bool{}
	for left := len(all); left > 0; {
		switch e := c.Poll(int(timeout.Milliseconds())).(type) {
		case *kafka.Message:
			kinds[strings.TrimRight(string(e.Value), "0123456789")]++
			values[string(e.Value)] = true
		case kafka.PartitionEOF:
			left--
		case nil:
			return fmt.Errorf("%s: %d partitions have no end", level, left)
		case kafka.Error:
			if e.IsFatal() {
				return e
			}
		}
	}
	fmt.Print(level)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Print(" ", kind, " ", kinds[kind])
	}
	fmt.Println(" distinct", len(values))
	return c.Close()
}
