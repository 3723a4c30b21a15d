package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"kaas/bench/franz"
	"kaas/bench/load"
	"kaas/bench/process"
)

// Run runs the load once and returns what was measured, most important first. It ends early, in good order, when ctx does.
func (s Spec) Run(ctx context.Context, progress load.Progress) ([]load.Result, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	stop := &atomic.Bool{}
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	// Clients of others end by stop too, so that what is under way is still counted.
	r := runner{Spec: &s, ctx: context.WithoutCancel(ctx), stop: stop, progress: progress}
	results, err := r.charged(r.run)
	if len(results) == 0 && err == nil {
		err = errors.New("nothing was measured")
	}
	return results, err
}

type runner struct {
	*Spec
	ctx      context.Context
	stop     *atomic.Bool
	progress load.Progress
}

// charged adds what the broker used, when its process is known. With several results it stands in the first.
func (r *runner) charged(run func() ([]load.Result, error)) ([]load.Result, error) {
	if r.PID == 0 {
		return run()
	}
	before, err := process.CPU(r.PID)
	if err != nil {
		return nil, err
	}
	memory := process.WatchMemory(r.PID)
	results, err := run()
	peak := memory()
	if err != nil {
		return nil, err
	}
	after, err := process.CPU(r.PID)
	if err == nil && len(results) > 0 {
		results[0].Broker = &load.BrokerUse{CPUSeconds: after - before, RssAnonPeak: peak}
	}
	return results, err
}

func (r *runner) limits() load.Limits {
	return load.Limits{Duration: r.Duration, Records: r.Records, Bytes: r.Bytes, Requests: r.Requests, Stop: r.stop}
}

func (r *runner) run() ([]load.Result, error) {
	switch r.Kind {
	case Connections:
		return r.connections()
	case Topics:
		return load.Topics(load.TopicsConfig{
			Brokers: r.Bootstrap, Prefix: r.Topic, Topics: r.Topics, Partitions: max(r.Partitions, 1), PerRequest: r.PerRequest, Keep: r.Keep,
		})
	case Mixed:
		return r.mixed()
	}
	if r.Client == Franz {
		return r.franz()
	}
	switch r.Kind {
	case Produce:
		return r.warmed(func(l load.Limits) ([]load.Result, error) {
			res, err := load.Produce(r.ownProduce(l))
			return []load.Result{res}, err
		})
	case Consume:
		return r.warmed(func(l load.Limits) ([]load.Result, error) {
			res, err := load.Fetch(r.ownFetch(r.Topic, r.Clients, l))
			return []load.Result{res}, err
		})
	}
	return r.warmed(func(l load.Limits) ([]load.Result, error) {
		written, read, err := load.EndToEnd(r.ownProduce(l))
		return []load.Result{read, written}, err
	})
}

// warmed runs the same load before, for the time of the warm-up, and forgets what that measured.
func (r *runner) warmed(run func(load.Limits) ([]load.Result, error)) ([]load.Result, error) {
	if r.WarmUp > 0 {
		if _, err := run(load.Limits{Duration: r.WarmUp, Stop: r.stop}); err != nil {
			return nil, err
		}
	}
	return run(r.limits())
}

// ownProduce turns the rate of records into one of requests.
func (r *runner) ownProduce(l load.Limits) load.ProduceConfig {
	return load.ProduceConfig{
		Brokers: r.Bootstrap, Topic: r.Topic, Partitions: r.Partitions, Connections: r.Clients, Pipeline: r.InFlight, BatchBytes: r.BatchBytes,
		RecordBytes: r.RecordSize, Acks: r.Acks, RecordRate: r.Rate, Compression: r.Compression, Limits: l, Progress: r.progress,
	}
}

func (r *runner) ownFetch(topic string, clients int, l load.Limits) load.FetchConfig {
	return load.FetchConfig{
		Brokers: r.Bootstrap, Topic: topic, Connections: clients, MaxBytes: r.MaxBytes, Alike: r.Alike, Limits: l, Progress: r.progress,
	}
}

func (r *runner) franz() ([]load.Result, error) {
	tls, err := r.TLS.config()
	if err != nil {
		return nil, err
	}
	base := franz.Config{
		Brokers: r.Bootstrap, Topic: r.Topic, Clients: r.Clients, TLS: tls, WarmUp: r.WarmUp, Limits: r.limits(), Progress: r.progress,
	}
	layout, err := franz.Prepare(r.ctx, base, r.Partitions)
	if err != nil {
		return nil, err
	}
	base.Partitions = len(layout.Starts)
	if r.Kind == Consume {
		c := franz.ConsumeConfig{Config: base, Group: r.Group, All: r.FanOut, MaxBytes: r.MaxBytes, Ends: layout.Ends}
		res, err := franz.Consume(r.ctx, c, layout.Starts)
		return []load.Result{res}, err
	}
	c := franz.ProduceConfig{
		Config: base, RecordBytes: r.RecordSize, BatchBytes: r.BatchBytes, Linger: r.Linger, Acks: r.Acks, Idempotent: r.Idempotence, Keys: r.Keys,
		Rate: r.Rate, Buffered: r.Buffered, InFlight: r.InFlight, Compression: r.Compression,
	}
	if r.Kind == Produce {
		res, err := franz.Produce(r.ctx, c)
		return []load.Result{res}, err
	}
	written, read, err := franz.EndToEnd(r.ctx, c, layout.Ends)
	return []load.Result{read, written}, err
}

// connections opens them and keeps them for a while.
func (r *runner) connections() ([]load.Result, error) {
	begun, cpu := time.Now(), load.CPUSeconds()
	latency := load.NewRecorder()
	idle, err := load.OpenIdleTimed(r.Bootstrap[0], r.Clients, latency, load.AnswerMax)
	if err != nil {
		return nil, err
	}
	defer idle.Close()
	res := load.Result{
		Kind: Connections, Connections: idle.Len(), Seconds: time.Since(begun).Seconds(), Requests: int64(idle.Len()), ClientCPU: load.CPUSeconds() - cpu,
		Held: idle.Len(),
	}
	latency.Finish(&res)
	for end := time.Now().Add(r.Hold); time.Now().Before(end) && !r.stop.Load(); {
		time.Sleep(min(time.Until(end), 50*time.Millisecond))
	}
	res.Lost = idle.Lost()
	return []load.Result{res}, nil
}

// mixed is an end-to-end load beside readers that begin at the beginning of another topic, which must exist, again and again.
func (r *runner) mixed() ([]load.Result, error) {
	if r.ColdReaders > 0 && r.ColdTopic == "" {
		return nil, errors.New("cold readers: need the name of a topic that has something to read")
	}
	var cold []load.Result
	var coldErr error
	var group sync.WaitGroup
	ended := &atomic.Bool{}
	if r.ColdReaders > 0 {
		c := r.ownFetch(r.ColdTopic, r.ColdReaders, load.Limits{Duration: longest, Stop: ended})
		c.Progress = nil
		group.Go(func() {
			res, err := load.Fetch(c)
			res.Kind = "cold-consume"
			cold, coldErr = []load.Result{res}, err
		})
	}
	results, err := r.warmed(func(l load.Limits) ([]load.Result, error) {
		written, read, err := load.EndToEnd(r.ownProduce(l))
		return []load.Result{read, written}, err
	})
	ended.Store(true)
	group.Wait()
	if coldErr != nil {
		coldErr = fmt.Errorf("cold readers: %w", coldErr)
	}
	return append(results, cold...), errors.Join(err, coldErr)
}

// longest is the end of a part of a run that another part ends.
const longest = 1000 * time.Hour
