package delivery_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/dnstest"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/receiver"
	"github.com/postlane-go/postlane/internal/wake"
)

func TestBC02_LargePayloadsArriveAndTheWakeUpHoldsNoContent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	bodies := map[string][]byte{}
	s := siteWith(b, receiver.Config{Observe: func(a receiver.Arrival, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		bodies[a.ID] = bytes.Clone(body)
	}})
	sub := s.endpoint("/a")
	listener, err := pgx.ConnectConfig(s.ctx, pgtest.Direct(t, s.pool))
	s.is.NoErr(err)
	t.Cleanup(func() { _ = listener.Close(t.Context()) })
	_, err = listener.Exec(s.ctx, "LISTEN "+wake.Channel)
	s.is.NoErr(err)

	// 64 KiB is the most that comes with a claim.
	sent := map[string][]byte{}
	for i, size := range []int{0, 1, 7_000, 7_999, 8_000, 9_000, 64 << 10, 64<<10 + 1, 1_000_000, delivery.MaxPayload} {
		e := event(strings.Repeat("🙂", 120) + fmt.Sprint(i%3))
		e.Type = strings.Repeat("t", delivery.MaxEventType)
		e.Payload = bytes.Repeat([]byte{'x', 0, 0xff, byte(i)}, size/4+1)[:size]
		sent[s.enqueueEvents(e)[0].ID] = e.Payload
	}
	s.dispatch(s.config())
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 10))
	s.sound()
	for id, want := range sent {
		if !bytes.Equal(bodies[id], want) {
			t.Errorf("%d bytes arrived of %d that were sent, or others", len(bodies[id]), len(want))
		}
	}
	s.eventually(func() bool { return s.counts(sub) == "delivered:10 " })
	n, err := listener.WaitForNotification(s.within(patience))
	s.is.NoErr(err)
	s.is.Equal(n.Payload, string(wake.Delivery))
}

func TestBC25_AnAnswerThatCannotBeRecordedForAWhile(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts = 3 })
	s.raiseOn("NEW.asset = 'x'")
	c := s.brief(s.config())
	w := observe(t, &c)
	refusals := make(chan string, 1000)
	c.Logger = logTo(refusals)
	s.enqueue("x", "x")
	s.dispatch(c)
	began := time.Now()
	for time.Since(began) < c.Lease+c.Lease/2 { // the refusals come at a backoff
		logged(t, refusals, "refuses")
	}
	s.exec("DROP TRIGGER refuse ON postlane.settled")
	w.outcomes(2)
	s.is.Equal(s.counts(sub), "delivered:2 ")
	s.is.Equal(s.requests("/a"), 2) // the lease was kept meanwhile, so it was not sent again
	s.is.Equal(len(s.attempts(sub, s.log(sub)[0].ID)), 1)
	s.is.Equal(s.subscription(sub).Failures, 0)
	s.sound()
}

func TestBC25_AnAnswerThatCanNeverBeRecordedStopsNoOther(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts = 1 })
	s.raiseOn("NEW.asset = 'x' AND NEW.state = 'delivered'")
	hold := make(chan struct{})
	s.behave("/a", receiver.Behaviour{Hold: hold})
	arrivals, stop := s.receiver.Arrivals(100)
	c := s.brief(s.config())
	c.MaxInFlight, c.MaxInFlightPerSubscription, c.Ahead = 40, 40, -1
	w := observe(t, &c)
	s.enqueue(append(names("k", 10), "x", "x")...)
	s.dispatch(c)
	for range 11 {
		await(t, arrivals)
	}
	stop()
	close(hold) // all at once, so that they are recorded together
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 11))
	w.outcomes(10)
	s.is.Equal(s.counts(sub), "pending:1 delivering:1 delivered:10 ")
	s.enqueue(names("k", 10)...)
	w.outcomes(10)
	// Some leases later it is let go of, and its stream goes on.
	await(t, w.reclaimed)
	s.eventually(func() bool { return s.counts(sub) == "delivered:20 dead:1 delivering:1 " || s.requests("/a") == 22 })
	s.is.Equal(s.log(sub)[10].State, delivery.Dead)
	s.is.Equal(s.log(sub)[10].Reason, "stalled")
	s.is.Equal(s.subscription(sub).Failures, 0)
	s.exec("DROP TRIGGER refuse ON postlane.settled")
	w.outcomes(1)
	s.sound()
}

// raiseOn makes settling fail for rows of settled that a condition is true of.
func (s *site) raiseOn(condition string) {
	s.t.Helper()
	s.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF ` + condition + ` THEN RAISE EXCEPTION 'refused by the test'; END IF; RETURN NEW; END $$`)
	s.exec("CREATE TRIGGER refuse BEFORE INSERT ON postlane.settled FOR EACH ROW EXECUTE FUNCTION refuse()")
}

func TestBC33_NoFailureToConnectIsFinal(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	dns := dnstest.Start(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	s.is.NoErr(err)
	s.is.NoErr(closed.Close())
	mute, err := net.Listen("tcp", "127.0.0.1:0") // not TLS
	s.is.NoErr(err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := mute.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("SSH-2.0-no\r\n"))
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = mute.Close(); serving.Wait() })
	s.behave("/reset", receiver.Behaviour{Status: receiver.Drop})
	urls := map[sender.Outcome]string{
		sender.DNSNotFound:       "http://nowhere.test/a",
		sender.ConnectionRefused: "http://" + closed.Addr().String() + "/a",
		sender.TLSHandshake:      "https://" + mute.Addr().String() + "/a",
		sender.ConnectionClosed:  s.url + "/reset",
	}
	c := s.config()
	c.Sender = s.sender(sender.Config{Timeout: time.Second, Resolver: dns.Resolver()})
	c.Schedule = schedule(t, time.Second) // long enough to look at what waits
	w := observe(t, &c)
	subs := map[sender.Outcome]delivery.SubscriptionID{}
	for outcome, url := range urls {
		sub, secret, err := s.store.CreateSubscription(s.ctx, tenant, delivery.Settings{URL: url})
		s.is.NoErr(err)
		subs[outcome] = sub.ID
		s.is.NoErr(s.receiver.SetSecrets("/healed"+string(outcome), secret.Reveal()))
	}
	s.enqueue("x")
	s.dispatch(c)
	for _, o := range w.outcomes(len(urls)) {
		s.is.Equal(o.State, delivery.SettledPending)
	}
	for outcome, sub := range subs {
		d := s.log(sub)[0]
		s.is.True(d.State != delivery.Dead)
		first := s.attempts(sub, d.ID)[0]
		s.is.Equal(first.Outcome, string(outcome))
		s.is.Equal(first.Status, nil)
		_, err := s.store.UpdateSubscription(s.ctx, sub, func(set *delivery.Settings) error {
			set.URL = s.url + "/healed" + string(outcome)
			return nil
		})
		s.is.NoErr(err)
	}
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), int64(len(urls))))
	for _, sub := range subs {
		s.eventually(func() bool { return s.counts(sub) == "delivered:1 " })
	}
}

func TestBC34_OnlyA2xxIsDelivered(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	c := s.config()
	w := observe(t, &c)
	subs := map[int]delivery.SubscriptionID{}
	for _, status := range []int{200, 201, 202, 204, 299, 301, 304, 307, 400, 404, 410, 500} {
		path := fmt.Sprintf("/%d", status)
		subs[status] = s.endpoint(path, func(set *delivery.Settings) { set.MaxAttempts = 2 })
		s.behave(path, receiver.Behaviour{Status: status, Header: http.Header{"Location": {s.url + "/canary"}}})
	}
	s.enqueue("x", "x")
	s.dispatch(c)
	w.outcomes(5*2 + 6*4 + 1)
	for status, sub := range subs {
		d := s.log(sub)
		switch {
		case status < 300:
			s.is.Equal(s.counts(sub), "delivered:2 ")
		case status == 410:
			s.is.Equal(s.counts(sub), "pending:1 dead:1 ")
			s.is.Equal(d[0].Reason, "the endpoint answered 410 Gone")
			now := s.subscription(sub)
			s.is.Equal(now.State, delivery.Disabled)
			s.is.Equal(now.Reason, "the endpoint answered 410 Gone")
		default:
			s.is.Equal(s.counts(sub), "dead:2 ")
			s.is.Equal(*s.attempts(sub, d[0].ID)[0].Status, status)
		}
	}
	s.is.Equal(await(t, w.disabled), "the endpoint answered 410 Gone")
	s.passes(3, w)
	s.is.Equal(s.requests("/410"), 1)
	s.is.Equal(s.requests("/canary"), 0)
}

func TestBC39_EveryAttemptIsTheSameEventFreshlySigned(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	type seen struct {
		arrival receiver.Arrival
		body    string
	}
	var list []seen
	s := siteWith(setup(t), receiver.Config{
		Observe: func(a receiver.Arrival, body []byte) {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, seen{a, string(body)})
		},
		// It takes what is up to 5 minutes old: a clock that is fast by nearly that
		// takes what was signed within 10 s of its arrival.
		Now: func() time.Time { return time.Now().Add(5*time.Minute - 10*time.Second) },
	})
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts = 3 })
	s.behave("/a", receiver.Behaviour{FailFirst: 3})
	c := s.config()
	c.Schedule = schedule(t, 5500*time.Millisecond) // the third would be too old with the signature of the first
	w := observe(t, &c)
	e := event("x")
	e.Payload = []byte(`{"b":1,  "a":[{"ü":"\u0000"},  2]}`)
	id := s.enqueueEvents(e)[0].ID
	s.dispatch(c)
	w.outcomes(3)
	s.is.Equal(s.counts(sub), "dead:1 ")
	s.is.NoErr(s.store.Revive(s.ctx, sub, s.log(sub)[0].ID))
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 1))
	s.sound() // each signature and timestamp was good when it arrived
	mu.Lock()
	defer mu.Unlock()
	s.is.Equal(len(list), 4)
	for i, attempt := range []int{1, 2, 3, 1} {
		s.is.Equal(list[i].arrival.ID, id)
		s.is.Equal(list[i].body, string(e.Payload))
		s.is.Equal(list[i].arrival.Attempt, attempt)
	}
	w.outcomes(1)
	s.is.Equal(s.counts(sub), "delivered:1 ")
	s.is.Equal(len(s.attempts(sub, s.log(sub)[0].ID)), 4)
}

func TestAFaultOnThisSideCountsAgainstNobody(t *testing.T) {
	t.Parallel()
	t.Run("postponed", func(t *testing.T) { // no request was made: it is not an attempt
		t.Parallel()
		s := setupSite(t)
		sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts, set.DisableAfter = 1, 1 })
		c := s.config()
		c.Sender = sendFunc{c.Sender, func(func() sender.Result, sender.Request) sender.Result {
			return sender.Result{Outcome: sender.LocalFailure, Err: errors.New("out of ports")}
		}}
		w := observe(t, &c)
		s.enqueue("x")
		s.dispatch(c)
		s.is.Equal(w.outcomes(1)[0].State, delivery.SettledPending)
		d := s.log(sub)[0]
		s.is.Equal(d.Attempts, 0)
		s.is.True(d.Due != nil) // not a hot loop
		s.is.Equal(len(s.attempts(sub, d.ID)), 0)
	})
	t.Run("dead", func(t *testing.T) { // a resolver that fails may do so for ever: bounded, and blameless
		t.Parallel()
		s := setupSite(t)
		sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts, set.DisableAfter = 2, 1 })
		c := s.config()
		c.Sender = sendFunc{c.Sender, func(func() sender.Result, sender.Request) sender.Result {
			return sender.Result{Outcome: sender.DNSFailure, Started: time.Now()}
		}}
		w := observe(t, &c)
		s.enqueue("x")
		s.dispatch(c)
		w.outcomes(2)
		s.is.Equal(s.counts(sub), "dead:1 ")
		s.is.Equal(s.subscription(sub).State, delivery.Active)
		s.is.Equal(s.subscription(sub).Failures, 0)
	})
}

func TestRetryAfterIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	s.behave("/a", receiver.Behaviour{Status: 503, Header: http.Header{"Retry-After": {"3600"}}})
	c := s.config()
	w := observe(t, &c)
	s.enqueue("x")
	s.dispatch(c)
	w.outcomes(1)
	var due float64
	s.is.NoErr(s.pool.QueryRow(s.ctx, "SELECT extract(epoch FROM due_at - now()) FROM postlane.deliveries").Scan(&due))
	s.is.True(due > 3500 && due <= 3600)
	s.is.True(s.log(sub)[0].Due != nil)
}
