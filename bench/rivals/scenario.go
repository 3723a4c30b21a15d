package rivals

import (
	"fmt"
	"time"

	"kaas/bench/load"
)

// scenario is one row of the comparison. Amounts are those of a full run.
type scenario struct {
	name    string
	what    string
	brokers []string // that take part
	needs   string   // client beside those of this program: java, librdkafka
	measure func(t *turn) error
	bars    []bar // with what rivals took when they were set: both are of one machine, and one run
}

var (
	disk  = []string{Kaas, Apache, Kfake, Memory}
	three = []string{Kaas, Apache, Kfake}
	all   = []string{Kaas, Apache, Kfake, Memory, Floor}
)

// scenarios in the order of the tables.
var scenarios = []scenario{
	{
		name: "java-default", what: "Java producer, default settings, 1 KiB records", brokers: disk, needs: "java",
		measure: func(t *turn) error { return t.javaBulk(pageCache, 400_000) },
		bars:    []bar{atLeast(1.3, bytesPerSecond, Kfake), atMost(1.0, cpuPerGB).where(Kfake, 3.5)},
	},
	{
		name: "java-256k", what: "Java producer, 256 KiB batches, linger 5 ms, 1 KiB records", brokers: disk, needs: "java",
		measure: func(t *turn) error {
			return t.javaBulk(pageCache, 1_000_000, "batch.size=262144", "linger.ms=5", "buffer.memory=67108864")
		},
		bars: []bar{atLeast(1.05, bytesPerSecond, Kfake), atMost(0.55, cpuPerGB).where(Kfake, 1.8), atMost(64, rssPeak)},
	},
	{
		name: "franz-produce", what: "franz-go producer, batches up to 1 MiB, linger 5 ms, 1 KiB records", brokers: disk,
		measure: func(t *turn) error {
			return t.benchOn(pageCache, 4, "produce", "--client", "franz-go", "--clients", "1", "--partitions", "4", "--batch-bytes", "1000000", "--linger", "5ms",
				"--in-flight", "5", "--buffered", "50000", "--records", t.count(1_500_000))
		},
		bars: []bar{atLeast(1.2, bytesPerSecond, Kfake), atMost(0.5, cpuPerGB).where(Kfake, 0.84), atMost(64, rssPeak)},
	},
	{
		name: "librdkafka-produce", what: "librdkafka producer, its own batching (1 MB, linger 5 ms), 1 KiB records", brokers: disk, needs: "librdkafka",
		measure: func(t *turn) error {
			return t.with(pageCache, func() error {
				if err := t.createTopic(topic, 4); err != nil {
					return err
				}
				return t.charge(func() (outcome, error) {
					return t.rdkafka("produce", t.scaled(1_500_000), 1<<10, 4, "queue.buffering.max.messages=1000000", "linger.ms=5")
				})
			})
		},
		bars: []bar{atLeast(1.1, bytesPerSecond, Kfake), atMost(0.7, cpuPerGB).where(Kfake, 1.4)},
	},
	{
		name: "java-consume", what: "Java consumer, default settings, 1 KiB records in 64 KiB batches, warm", brokers: disk, needs: "java",
		measure: func(t *turn) error {
			return t.consume(1, func(records int64) (outcome, error) { return t.javaConsume(records) })
		},
		bars: consumeBars,
	},
	{
		name: "franz-consume", what: "franz-go consumer, the same", brokers: disk,
		measure: func(t *turn) error {
			return t.consume(1, func(int64) (outcome, error) {
				return t.bench("consume", "--client", "franz-go", "--clients", "1", "--max-bytes", "52428800")
			})
		},
		bars: consumeBars,
	},
	{
		name: "librdkafka-consume", what: "librdkafka consumer, the same; fetch.queue.backoff.ms=1: its second is a pause each time that a broker is ahead of the application", brokers: disk, needs: "librdkafka",
		measure: func(t *turn) error {
			return t.consume(1, func(records int64) (outcome, error) {
				return t.rdkafka("consume", records, 1<<10, 1, "check.crcs=true", "fetch.message.max.bytes=1048576", "fetch.queue.backoff.ms=1")
			})
		},
		bars: consumeBars,
	},
	{
		name: "fan-out", what: "8 franz-go consumers read everything each, warm", brokers: disk,
		measure: func(t *turn) error {
			return t.consume(4, func(int64) (outcome, error) {
				return t.bench("consume", "--client", "franz-go", "--clients", "8", "--fan-out", "--max-bytes", "4194304")
			})
		},
		bars: []bar{atLeast(1.1, bytesPerSecond, Apache), atMost(0.36, cpuPerGB).where(Kfake, 0.76)},
	},
	single(1, nil), single(16, singleBars), single(64, singleBars),
	{
		name: "large-records", what: "franz-go producer, records of 100 KB", brokers: disk,
		measure: func(t *turn) error {
			return t.benchOn(pageCache, 4, "produce", "--client", "franz-go", "--clients", "1", "--partitions", "4", "--record-size", "100000", "--batch-bytes", "1000000",
				"--buffered", "200", "--records", t.count(10_000))
		},
	},
	{
		name: "keyed-50", what: "50 franz-go producers with keys, linger 0, 100 B records on 100 partitions", brokers: disk,
		measure: func(t *turn) error {
			return t.benchOn(pageCache, 100, "produce", "--client", "franz-go", "--clients", "50", "--partitions", "100", "--record-size", "100", "--keys", "10000",
				"--batch-bytes", "16384", "--buffered", "200", "--duration", t.seconds(5), "--warm-up", t.seconds(1))
		},
	},
	{
		name: "tail-and-cold", what: "open loop of 1,000 records/s read at the end, quiet and beside 4 readers of cold data", brokers: three,
		measure: (*turn).tailAndCold, bars: []bar{atMost(2, ackP99Times)},
	},
	openLoop("open-1k", "1000", percentiles{0.12, 0.4, 1.2}, percentiles{0.15, 0.50, 1.5}),
	openLoop("open-10k", "10000", percentiles{0.15, 0.6, 2.5}, percentiles{0.20, 0.88, 3.3}),
	{
		name: "end-to-end", what: "franz-go, 1,000 records/s of 1 KiB: from the due time until a consumer has it", brokers: disk,
		measure: func(t *turn) error {
			return t.benchOn(pageCache, 1, "e2e", "--client", "franz-go", "--clients", "1", "--partitions", "1", "--rate", "1000", "--duration", t.seconds(8), "--warm-up", t.seconds(2))
		},
	},
	{
		name: "sync-16", what: "fsync per acknowledgement, 16 clients of the own generator, 1 KiB records", brokers: three,
		measure: func(t *turn) error { return t.commit(16) }, bars: []bar{atLeast(3, requestsPerSecond, Apache), atMost(30, cpuPerRequest).where(Apache, 313)},
	},
	{
		name: "sync-64", what: "fsync per acknowledgement, 64 clients", brokers: three,
		measure: func(t *turn) error { return t.commit(64) }, bars: []bar{atLeast(4, requestsPerSecond, Apache), atMost(30, cpuPerRequest).where(Apache, 163)},
	},
	{
		name: "sync-java", what: "fsync per acknowledgement, Java producer with default settings, 1 KiB records", brokers: three, needs: "java",
		measure: func(t *turn) error { return t.javaBulk(synced, 100_000) },
		bars:    []bar{atLeast(1.5, bytesPerSecond, best), atMost(64, rssPeak)},
	},
	{
		name: "start-idle", what: "start to the first answer on an empty directory; then idle", brokers: disk,
		measure: (*turn).idle, bars: []bar{atMost(15, startMs).where(Kfake, 6.5), atMost(6, idleRss), atMost(0.1, idleCPU)},
	},
	{
		name: "partitions", what: "create two topics of 1,000 partitions; restart with both until every partition answers", brokers: three,
		measure: (*turn).partitions, bars: []bar{atMost(50, createMs).where(Kfake, 7), atMost(60, restartMs).where(Kfake, 45)},
	},
	{
		name: "own-produce", what: "own generator, 16 KiB batches, 4 connections with 8 in flight", brokers: all,
		measure: func(t *turn) error {
			return t.benchOn(pageCache, 1, "produce", "--clients", "4", "--in-flight", "8", "--batch-bytes", "16384", "--acks", "1", "--bytes", t.count(1500*mib))
		},
		bars: []bar{atLeast(0.65, bytesPerSecond, Floor)},
	},
	{
		name: "own-fetch", what: "own generator, 1 MiB answers, 4 connections, warm", brokers: all,
		measure: func(t *turn) error {
			return t.consume(1, func(records int64) (outcome, error) {
				return t.bench("consume", "--clients", "4", "--alike", "--bytes", t.count(4000*mib))
			})
		},
		bars: []bar{atLeast(0.65, bytesPerSecond, Floor)},
	},
}

var (
	consumeBars = []bar{atLeast(0.97, bytesPerSecond, Apache), atMostOf(0.8, cpuPerGB, Apache)}
	singleBars  = []bar{atLeast(1.3, requestsPerSecond, Kfake), atMost(8, cpuPerRequest).where(Kfake, 15)}
)

func single(clients int, bars []bar) scenario {
	return scenario{
		name: fmt.Sprintf("small-%d", clients), what: fmt.Sprintf("one 100 B record per request, %d connections with one in flight each", clients), brokers: disk,
		measure: func(t *turn) error {
			return t.benchOn(pageCache, 1, "produce", "--clients", fmt.Sprint(clients), "--in-flight", "1", "--batch-bytes", "1", "--record-size", "100",
				"--duration", t.seconds(4), "--warm-up", t.seconds(1))
		},
		bars: bars,
	}
}

// percentiles are p50, p99 and p99.9 in milliseconds.
type percentiles [3]float64

// openLoop has bars, and what kfake took on their machine.
func openLoop(name, rate string, limits, kfake percentiles) scenario {
	var bars []bar
	for i, figure := range []string{p50, p99, p999} {
		bars = append(bars, atMost(limits[i]*1e3, figure).where(Kfake, kfake[i]*1e3))
	}
	return scenario{
		name: name, what: "open loop of " + rate + " requests/s, one 1 KiB record each, 16 connections: acknowledgement", brokers: disk,
		measure: func(t *turn) error {
			return t.benchOn(pageCache, 1, "produce", "--clients", "16", "--batch-bytes", "1", "--rate", rate, "--duration", t.seconds(8), "--warm-up", t.seconds(2))
		},
		bars: bars,
	}
}

func (t *turn) count(n int64) string { return fmt.Sprint(t.scaled(n)) }

func (t *turn) seconds(n int) string { return t.pause(time.Duration(n) * time.Second).String() }

// benchOn runs a load of this program on a topic that is there.
func (t *turn) benchOn(durability string, partitions int, args ...string) error {
	return t.with(durability, func() error {
		if err := t.createTopic(topic, partitions); err != nil {
			return err
		}
		return t.charge(func() (outcome, error) { return t.bench(args...) })
	})
}

func (t *turn) javaBulk(durability string, records int64, properties ...string) error {
	return t.with(durability, func() error {
		if err := t.createTopic(topic, 1); err != nil {
			return err
		}
		return t.charge(func() (outcome, error) { return t.javaProduce(t.scaled(records), 1<<10, properties...) })
	})
}

// consume fills a topic with a gigabyte and has it read.
func (t *turn) consume(partitions int, read func(records int64) (outcome, error)) error {
	return t.with(pageCache, func() error {
		records, err := t.fill(topic, partitions, t.scaled(1000*mib))
		if err != nil {
			return err
		}
		return t.charge(func() (outcome, error) { return read(records) })
	})
}

// commit is a closed loop of clients that wait for the disk.
func (t *turn) commit(clients int) error {
	return t.benchOn(synced, 1, "produce", "--clients", fmt.Sprint(clients), "--in-flight", "1", "--batch-bytes", "1", "--duration", t.seconds(5), "--warm-up", t.seconds(1))
}

// tailAndCold runs the same open loop twice: alone, and beside readers of data that is dropped from the page cache again and again.
func (t *turn) tailAndCold() error {
	mixed := []string{"mixed", "--rate", "1000", "--partitions", "4", "--clients", "4", "--duration", t.seconds(6), "--warm-up", t.seconds(1)}
	return t.with(pageCache, func() error {
		if _, err := t.fill("cold", 4, t.scaled(1000*mib)); err != nil {
			return err
		}
		if err := t.createTopic(topic, 4); err != nil {
			return err
		}
		quiet, err := t.bench(append(mixed, "--cold-readers", "0")...)
		if err != nil {
			return err
		}
		end, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- t.keepCold(end) }()
		busy, err := t.charged(func() (outcome, error) {
			return t.bench(append(mixed, "--cold-readers", "4", "--cold-topic", "cold")...)
		})
		close(end)
		if dropped := <-ended; err == nil {
			err = dropped
		}
		t.figures[ackP99Quiet], t.figures[ackP99Cold] = quiet.acknowledgementP99, busy.acknowledgementP99
		t.figures[ackP99Times] = busy.acknowledgementP99 / quiet.acknowledgementP99
		return err
	})
}

const dropPause = 200 * time.Millisecond

func (t *turn) keepCold(end <-chan struct{}) error {
	for {
		if err := t.dropCache(); err != nil {
			return err
		}
		select {
		case <-end:
			return nil
		case <-time.After(dropPause):
		}
	}
}

func (t *turn) idle() error {
	return t.with(pageCache, func() error {
		t.figures[startMs] = t.broker.StartMs
		time.Sleep(t.pause(2 * time.Second))
		before, err := t.broker.CPU()
		if err != nil {
			return err
		}
		length := t.pause(5 * time.Second)
		time.Sleep(length)
		after, err := t.broker.CPU()
		if err != nil {
			return err
		}
		t.figures[idleCPU] = 100 * (after - before) / length.Seconds()
		rss, err := t.broker.RssAnon()
		t.figures[idleRss] = rss / mib
		return err
	})
}

// partitions are created when the broker takes topics, which is shown by a first small one.
func (t *turn) partitions() error {
	const each = 1000
	names := []string{"many-1", "many-2"}
	err := t.with(pageCache, func() error {
		if err := t.createTopic("first", 1); err != nil {
			return err
		}
		for _, name := range names {
			c, err := load.Dial(t.broker.Address, time.Minute)
			if err != nil {
				return err
			}
			begun := time.Now()
			err = c.CreateTopics(each, name)
			t.figures[createMs] = float64(time.Since(begun).Microseconds()) / 1e3
			c.Close()
			if err == nil {
				err = t.createTopic(name, each)
			}
			t.figures[usableMs] = float64(time.Since(begun).Microseconds()) / 1e3
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	begun := time.Now()
	return t.with(pageCache, func() error {
		for _, name := range names {
			_, err := load.EnsureTopic([]string{t.broker.Address}, name, each)
			if err == nil {
				err = t.ready(name, each)
			}
			if err != nil {
				return err
			}
		}
		t.figures[restartMs] = float64(time.Since(begun).Microseconds()) / 1e3
		return nil
	})
}
