// Command librdkafka produces to and consumes from a broker through librdkafka (by confluent-kafka-go, which has it built in and needs cgo), and
// prints one line of JSON: seconds, records, bytes of values.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

type result struct {
	Seconds float64 `json:"seconds"`
	Records int64   `json:"records"`
	Bytes   int64   `json:"bytes"`
}

type properties map[string]kafka.ConfigValue

func (p properties) String() string { return "" }

func (p properties) Set(s string) error {
	key, value, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("want key=value")
	}
	p[key] = value
	return nil
}

func main() {
	config := kafka.ConfigMap{}
	bootstrap := flag.String("bootstrap", "127.0.0.1:9092", "bootstrap addresses")
	topic := flag.String("topic", "bench", "topic")
	records := flag.Int64("records", 1_000_000, "number of records")
	size := flag.Int("record-size", 1024, "bytes of a value")
	partitions := flag.Int("partitions", 1, "partitions to consume")
	flag.Var(properties(config), "set", "a setting of librdkafka, key=value; may be repeated")
	flag.Parse()
	config["bootstrap.servers"] = *bootstrap
	var r result
	var err error
	switch flag.Arg(0) {
	case "produce":
		r, err = produce(config, *topic, *records, *size)
	case "consume":
		r, err = consume(config, *topic, *records, *partitions)
	default:
		err = errors.New("say produce or consume, after the flags")
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "librdkafka:", err)
		os.Exit(1)
	}
}

const (
	flushMs = 60_000
	pollMs  = 30_000
)

func produce(config kafka.ConfigMap, topic string, records int64, size int) (result, error) {
	config["go.batch.producer"] = true // many records in one call into C
	config["go.delivery.reports"] = true
	p, err := kafka.NewProducer(&config)
	if err != nil {
		return result{}, err
	}
	defer p.Close()
	value := make([]byte, size)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range value {
		value[i] = byte(random.Uint32())
	}
	delivered := make(chan error, 1)
	begun := time.Now()
	go func() { delivered <- count(p.Events(), records) }()
	to := kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}
	for range records {
		p.ProduceChannel() <- &kafka.Message{TopicPartition: to, Value: value}
	}
	if err := <-delivered; err != nil {
		return result{}, err
	}
	seconds := time.Since(begun).Seconds()
	p.Flush(flushMs)
	return result{seconds, records, records * int64(size)}, nil
}

// count waits for so many delivery reports.
func count(events <-chan kafka.Event, records int64) error {
	for n := int64(0); n < records; {
		switch e := (<-events).(type) {
		case *kafka.Message:
			if e.TopicPartition.Error != nil {
				return e.TopicPartition.Error
			}
			n++
		case kafka.Error:
			if e.IsFatal() || e.Code() == kafka.ErrAllBrokersDown {
				return e
			}
		}
	}
	return nil
}

func consume(config kafka.ConfigMap, topic string, records int64, partitions int) (result, error) {
	config["group.id"] = "unused: partitions are assigned"
	config["enable.auto.commit"] = false
	c, err := kafka.NewConsumer(&config)
	if err != nil {
		return result{}, err
	}
	defer c.Close()
	var own []kafka.TopicPartition
	for i := range partitions {
		own = append(own, kafka.TopicPartition{Topic: &topic, Partition: int32(i), Offset: 0})
	}
	if err := c.Assign(own); err != nil {
		return result{}, err
	}
	var r result
	begun := time.Now()
	for r.Records < records {
		switch e := c.Poll(pollMs).(type) {
		case *kafka.Message:
			if e.TopicPartition.Error != nil {
				return r, e.TopicPartition.Error
			}
			r.Records++
			r.Bytes += int64(len(e.Value))
		case kafka.Error:
			return r, e
		case nil:
			return r, fmt.Errorf("nothing for %d ms after %d records", pollMs, r.Records)
		}
	}
	r.Seconds = time.Since(begun).Seconds()
	return r, nil
}
