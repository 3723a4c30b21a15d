package main

import (
	"fmt"
	"io"
	"os"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const commitEvery = 20 // records

// roll reads a topic in a group and commits what it has read, over restarts of the broker.
func roll(args []string) error {
	m, err := join(args[0], args[1], args[2], kafka.ConfigMap{"partition.assignment.strategy": "cooperative-sticky", "reconnect.backoff.max.ms": 500})
	if err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	for n := 0; ; {
		select {
		case <-over:
			return m.c.Close()
		default:
		}
		switch e := m.c.Poll(100).(type) {
		case *kafka.Message:
			fmt.Println("read", e.TopicPartition.Partition, int64(e.TopicPartition.Offset))
			if n++; n < commitEvery {
				continue
			}
		case kafka.Error:
			if e.IsFatal() {
				return e
			}
		case nil:
		default:
			continue
		}
		if n == 0 {
			continue
		}
		done, err := m.c.Commit() // also when nothing came for a while: no record is left without its commit
		if err != nil {
			fmt.Fprintln(os.Stderr, "commit:", err)
			continue
		}
		n = 0
		for _, p := range done {
			if p.Error == nil && p.Offset >= 0 {
				fmt.Println("committed", p.Partition, int64(p.Offset))
			}
		}
	}
}
