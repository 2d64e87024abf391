package dev

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/receiver"
)

// Result is the last line of a run with Once, as the receiver judges it.
type Result struct {
	Events     int     `json:"events"`
	Deliveries int64   `json:"deliveries"`
	Delivered  int64   `json:"delivered"`
	Dead       int64   `json:"dead"`
	Lost       int     `json:"lost"`
	OutOfOrder int64   `json:"out_of_order"`
	Overlaps   int64   `json:"overlaps"`
	Duplicates int64   `json:"duplicates"`
	Seconds    float64 `json:"seconds"`
}

// stuck is after how long without progress a run gives up.
const stuck = 60 * time.Second

// once sends the events through two subscriptions, one to all types and one to some,
// waits until all are settled, and judges.
func (s *stage) once(ctx context.Context) error {
	s.tenant = "once-" + rand.Text()
	all, err := s.subscribe(ctx, "/all", "*")
	if err != nil {
		return err
	}
	some, err := s.subscribe(ctx, "/versions", versionCreated)
	if err != nil {
		return err
	}
	defer func() {
		for _, id := range []delivery.SubscriptionID{all, some} {
			_ = s.store.DeleteSubscription(context.WithoutCancel(ctx), id) // the next run does not depend on it
		}
	}()
	p, err := newProducer(ctx, s.pool, s.tenant)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.config.Err, "sending %d events over %d streams to 2 subscriptions, with %d dispatching process(es)\n", s.config.Events, s.config.Streams, s.config.Workers)
	begin := time.Now()
	produced := make(chan error, 1)
	go func() { produced <- p.load(ctx, s.config.Events, s.config.Streams) }()
	if err := s.untilSettled(ctx, p, produced, all, some); err != nil {
		return err
	}
	r := Result{Events: int(p.events.Load()), Seconds: math.Round(time.Since(begin).Seconds()*1000) / 1000}
	return s.judge(ctx, p, r, all, some)
}

// untilSettled waits until everything that was produced is delivered, dead or discarded.
func (s *stage) untilSettled(ctx context.Context, p *producer, produced <-chan error, subs ...delivery.SubscriptionID) error {
	done := false
	var last int64
	moved, told := time.Now(), time.Now()
	settled := false
	err := tick(ctx, 50*time.Millisecond, func() error {
		select {
		case err := <-produced:
			if err != nil {
				return fmt.Errorf("writing events failed: %w", err)
			}
			done = true
		default:
		}
		v := s.receiver.Verdict()
		if v.Accepted != last {
			last, moved = v.Accepted, time.Now()
		}
		if time.Since(told) > time.Second {
			told = time.Now()
			fmt.Fprintf(s.config.Err, "%8d events written, %8d arrived\n", p.events.Load(), v.Events)
		}
		if time.Since(moved) > stuck {
			return fmt.Errorf("nothing has arrived for %v: %d events written, %d arrived", stuck, p.events.Load(), v.Events)
		}
		if !done || v.Accepted < s.expected(p) {
			return nil
		}
		open := int64(0)
		for _, id := range subs {
			counts, err := s.store.Counts(ctx, id)
			if err != nil {
				return err
			}
			open += counts[delivery.Pending] + counts[delivery.Delivering]
		}
		if open == 0 {
			settled = true
			return errSettled
		}
		return nil
	})
	if settled {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("interrupted: %d events written, %d requests answered", p.events.Load(), last)
	}
	return err
}

var errSettled = fmt.Errorf("settled")

// expected is how many deliveries the committed events make.
func (s *stage) expected(p *producer) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(2*len(p.committed[versionCreated]) + len(p.committed[expired]))
}

func (s *stage) judge(ctx context.Context, p *producer, r Result, subs ...delivery.SubscriptionID) error {
	for _, id := range subs {
		counts, err := s.store.Counts(ctx, id)
		if err != nil {
			return err
		}
		for _, n := range counts {
			r.Deliveries += n
		}
		r.Delivered += counts[delivery.Delivered]
		r.Dead += counts[delivery.Dead]
	}
	v := s.receiver.Verdict()
	committed := map[string][]string{
		"/all":      append(append([]string{}, p.committed[versionCreated]...), p.committed[expired]...),
		"/versions": p.committed[versionCreated],
	}
	for _, ids := range s.receiver.Lost(committed) {
		r.Lost += len(ids)
	}
	phantoms := int64(0)
	for _, n := range s.receiver.Phantoms(committed) {
		phantoms += n
	}
	r.OutOfOrder, r.Overlaps, r.Duplicates = v.OutOfOrder, v.Overlaps, v.Duplicates
	s.explain(v)
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Fprintln(s.config.Out, string(line))
	switch {
	case r.Lost > 0 || r.OutOfOrder > 0 || r.Overlaps > 0:
		return fmt.Errorf("%d lost, %d out of order, %d overlapping", r.Lost, r.OutOfOrder, r.Overlaps)
	case phantoms > 0:
		return fmt.Errorf("%d events arrived whose transactions were rolled back", phantoms)
	case v.Problems() > 0:
		return fmt.Errorf("the receiver found %d problems", v.Problems())
	}
	return nil
}

func (s *stage) explain(v receiver.Verdict) {
	for _, example := range v.Examples {
		fmt.Fprintln(s.config.Err, " ", example)
	}
}
