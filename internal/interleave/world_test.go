package interleave_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/interleave"
	"github.com/postlane-go/postlane/internal/pgtest"
)

const (
	tenant = "acme"
	lease  = time.Minute
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a database with a subscription, and what its actors have seen of it.
type world struct {
	t        *testing.T
	is       *is.I
	ctx      context.Context
	pool     *pgxpool.Pool
	observer *pgx.Conn
	scenario *scenario
	sub      delivery.SubscriptionID
	store    *delivery.Store // that stops nowhere

	// of a run
	seqs   []int64          // what setup enqueued
	claims []delivery.Claim // what setup claimed
	sent   []delivery.Claim // in the order of the requests
	fence  int64            // the highest that was seen
	// whose leases were renewed, and whose were taken back
	renewed, reclaimed map[int64]bool
	deleted            bool // the subscription, for its actor
}

// scenario is what actors do from a beginning.
type scenario struct {
	setup  func(w *world)
	actors []func(x *actor) error
	gates  []interleave.Gate
	// late: a delivery may come to stand before one that is in flight or settled.
	late bool
	// lost: leases may be lost, and what was sent is sent again.
	lost bool
	// most is how many requests may be sent; 0: any number.
	most int
	// byOne: batches of a replay are of one event.
	byOne bool
}

// gates of the statements that claim, park, and settle.
var (
	claimGates = []interleave.Gate{{Table: "postlane.leases", Event: "INSERT"}, {Table: "postlane.leases", Event: "INSERT", Row: true}}
	parkGates  = []interleave.Gate{{Table: "postlane.deliveries", Event: "UPDATE"}, {Table: "postlane.deliveries", Event: "UPDATE", Row: true}}
	goneGates  = []interleave.Gate{{Table: "postlane.deliveries", Event: "DELETE"}, {Table: "postlane.deliveries", Event: "DELETE", Row: true}}
)

// actor is one of a world's, with a store of its own whose clock is later by what its
// script says.
type actor struct {
	*world
	session *interleave.Actor
	later   time.Duration
}

func (w *world) storeOn(pool *pgxpool.Pool, now func() time.Time) *delivery.Store {
	g, err := guard.New(guard.Policy{Development: true})
	w.is.NoErr(err)
	s, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: g, Now: now})
	w.is.NoErr(err)
	return s
}

// explore tries a scenario in every order, with a fault or none.
func explore(t *testing.T, s *scenario, mutation interleave.Mutation) (orders int, err error) {
	t.Helper()
	url := pgtest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	w := &world{t: t, is: is.New(t), ctx: context.Background(), pool: pool, scenario: s}
	w.is.NoErr(err)
	t.Cleanup(pool.Close)
	w.store = w.storeOn(pool, func() time.Time { return noon })
	sub, _, err := w.store.CreateSubscription(w.ctx, tenant, delivery.Settings{URL: "http://127.0.0.1:8099/hook"})
	w.is.NoErr(err)
	w.sub = sub.ID
	w.observer, err = pgx.Connect(w.ctx, url)
	w.is.NoErr(err)
	t.Cleanup(func() { _ = w.observer.Close(w.ctx) })
	w.is.NoErr(interleave.InstallGates(w.ctx, pool, len(s.actors), s.gates...))
	actors := make([]*actor, len(s.actors))
	explorer := &interleave.Explorer{Observer: w.observer, Gated: len(s.gates) > 0}
	mutations := []interleave.Mutation{mutation}
	if s.byOne {
		mutations = append(mutations, batchOfOne)
	}
	for i := range s.actors {
		session, err := interleave.NewActor(w.ctx, url, i+1, mutations...)
		w.is.NoErr(err)
		t.Cleanup(session.Pool.Close)
		w.is.NoErr(session.Pool.Ping(w.ctx))
		actors[i] = &actor{world: w, session: session}
		explorer.Actors = append(explorer.Actors, session)
	}
	explorer.Begin = func(context.Context) ([]func() error, func(bool) error, error) {
		w.reset()
		s.setup(w)
		scripts := make([]func() error, len(actors))
		for i, x := range actors {
			x.later = 0
			scripts[i] = func() error { return s.actors[i](x) }
		}
		return scripts, w.check, nil
	}
	return explorer.Explore(w.ctx)
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.pool.Exec(w.ctx, sql, args...)
	w.is.NoErr(err)
}

func (w *world) reset() {
	w.exec(`DELETE FROM postlane.deliveries; DELETE FROM postlane.leases; DELETE FROM postlane.settled; DELETE FROM postlane.attempts;
		DELETE FROM postlane.events; DELETE FROM postlane.replays; DELETE FROM postlane.replayed;
		UPDATE postlane.subscriptions SET state = 'active', deleted_at = NULL, failure_count = 0, on_dead = 'continue', max_attempts = 8, rate_limit = NULL, rate_per_s = NULL, failing = false;
		DELETE FROM postlane.paces; DELETE FROM postlane.breakers`)
	w.store = w.storeOn(w.pool, func() time.Time { return noon })
	w.seqs, w.claims, w.sent, w.fence = nil, nil, nil, 0
	w.renewed, w.reclaimed, w.deleted = map[int64]bool{}, map[int64]bool{}, false
}

// enqueue has setup enqueue one event an asset, each in a transaction of its own.
func (w *world) enqueue(assets ...string) {
	for _, asset := range assets {
		seq, err := enqueue(w.ctx, w.pool, asset)
		w.is.NoErr(err)
		w.seqs = append(w.seqs, seq)
	}
}

func enqueue(ctx context.Context, pool *pgxpool.Pool, asset string) (seq int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		list, err := delivery.Enqueue(ctx, tx, delivery.Event{Tenant: tenant, Type: "t", Asset: asset, Payload: []byte("{}")})
		if err == nil {
			seq = list[0].Seq
		}
		return err
	})
	return seq, err
}

// claim has setup claim what there is.
func (w *world) claim() {
	var err error
	w.claims, err = w.store.Claim(w.ctx, request(2))
	w.is.NoErr(err)
	w.sent = append(w.sent, w.claims...)
	for _, c := range w.claims {
		w.fence = max(w.fence, c.Fence)
	}
}

func request(ahead int) delivery.ClaimRequest {
	return delivery.ClaimRequest{Claimant: "model", Max: 10, Ahead: ahead, MaxInFlight: 10, Lease: lease}
}

// die has setup settle what it claimed as dead.
func (w *world) die() {
	_, err := w.store.Settle(w.ctx, results(w.claims, delivery.Result{Verdict: delivery.Failed, Gone: true, Blameless: true}))
	w.is.NoErr(err)
	w.exec("UPDATE postlane.subscriptions SET state = 'active'")
}

func results(claims []delivery.Claim, r delivery.Result) []delivery.Result {
	list := make([]delivery.Result, len(claims))
	for i := range claims {
		list[i] = r
		list[i].Claim = &claims[i]
		list[i].Attempt = delivery.AttemptEvidence{Outcome: "delivered", Status: 200, Answered: true}
	}
	return list
}

// waiting are the deliveries that are committed and occupy their streams.
func (w *world) waiting() (list map[int64]string, err error) {
	rows, err := w.pool.Query(w.ctx, "SELECT seq, coalesce(asset, '') FROM postlane.deliveries")
	if err != nil {
		return nil, err
	}
	list = map[int64]string{}
	var seq int64
	var asset string
	_, err = pgx.ForEachRow(rows, []any{&seq, &asset}, func() error { list[seq] = asset; return nil })
	return list, err
}

func (x *actor) own() *delivery.Store {
	return x.storeOn(x.session.Pool, func() time.Time { return noon.Add(x.later) })
}

// take claims what there is, and looks whether it may.
func (x *actor) take(ahead int) ([]delivery.Claim, error) {
	fence := x.fence
	before, err := x.waiting()
	if err != nil {
		return nil, err
	}
	claims, err := x.own().Claim(x.ctx, request(ahead))
	if err != nil {
		return nil, err
	}
	after, err := x.waiting()
	if err != nil {
		return nil, err
	}
	for _, c := range claims {
		if c.Fence <= fence {
			return nil, fmt.Errorf("fence %d after %d", c.Fence, fence)
		}
		x.fence = max(x.fence, c.Fence)
		for seq, asset := range before {
			if _, waits := after[seq]; waits && asset == c.Asset && seq < c.Seq && !x.scenario.late {
				return nil, fmt.Errorf("claimed %d, and %d is before it in its stream", c.Seq, seq)
			}
		}
		if err := x.send(c); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// send makes a request.
func (x *actor) send(c delivery.Claim) error {
	for _, s := range x.sent {
		switch {
		case s.Seq == c.Seq && !x.scenario.lost && !x.scenario.late:
			return fmt.Errorf("%d is sent twice", c.Seq)
		case s.Asset == c.Asset && s.Seq > c.Seq && !x.scenario.late && !x.scenario.lost:
			return fmt.Errorf("%d is sent after %d", c.Seq, s.Seq)
		}
	}
	x.sent = append(x.sent, c)
	if most := x.scenario.most; most > 0 && len(x.sent) > most {
		return fmt.Errorf("%d requests are sent where %d may be", len(x.sent), most)
	}
	return nil
}

// say settles claims with a verdict.
func (x *actor) say(claims []delivery.Claim, r delivery.Result) error {
	if len(claims) == 0 {
		return nil
	}
	settlements, err := x.own().Settle(x.ctx, results(claims, r))
	if err != nil {
		return err
	}
	for i, s := range settlements {
		if s.State == delivery.SettledLost && !x.scenario.lost {
			return fmt.Errorf("the lease of %d is lost", claims[i].Seq)
		}
	}
	return nil
}

// deliver claims and succeeds.
func (x *actor) deliver() error {
	claims, err := x.take(0)
	if err != nil {
		return err
	}
	return x.say(claims, delivery.Result{Verdict: delivery.Succeeded})
}

// run claims a delivery and what follows it, and sends and settles them one by one.
func (x *actor) run() error {
	claims, err := x.take(2)
	if err != nil || len(claims) == 0 {
		return err
	}
	ahead, err := x.own().Ahead(x.ctx, claims[:1], 2)
	if err != nil {
		return err
	}
	run := slices.Concat(claims[:1], ahead[0])
	for i := range run {
		if i > 0 {
			if err := x.send(run[i]); err != nil {
				return err
			}
		}
		r := delivery.Result{Claim: &run[i], Verdict: delivery.Succeeded, Attempt: delivery.AttemptEvidence{Outcome: "delivered", Status: 200, Answered: true}}
		if i+1 < len(run) {
			r.Next = &run[i+1]
		}
		settlements, err := x.own().Settle(x.ctx, []delivery.Result{r})
		if err != nil {
			return err
		}
		if settlements[0].State == delivery.SettledLost {
			if !x.scenario.lost {
				return fmt.Errorf("the lease of %d is lost", run[i].Seq)
			}
			return nil
		}
	}
	return nil
}

func (x *actor) park() error {
	_, err := x.own().Park(x.ctx, 10)
	return err
}

func (x *actor) ripen(later time.Duration) error {
	x.later = later
	_, _, err := x.own().Ripen(x.ctx, 10)
	return err
}

func (x *actor) reclaim() error {
	x.later = 2 * lease
	reclaimed, err := x.own().Reclaim(x.ctx, 10)
	for _, r := range reclaimed {
		x.reclaimed[r.Seq] = true
	}
	if err != nil {
		return err
	}
	return x.renewedIsKept()
}

// renew renews the leases of what setup claimed, when they have run out.
func (x *actor) renew() error {
	x.later = 2 * lease
	claims := make([]*delivery.Claim, len(x.claims))
	held := map[int64]bool{}
	for i := range x.claims {
		claims[i] = &x.claims[i]
		held[claims[i].Seq] = true
	}
	lost, err := x.own().Renew(x.ctx, claims, lease)
	if err != nil {
		return err
	}
	for _, c := range lost {
		delete(held, c.Seq)
	}
	maps.Copy(x.renewed, held)
	return x.renewedIsKept()
}

// renewedIsKept: who was told that a lease is renewed has it.
func (x *actor) renewedIsKept() error {
	for seq := range x.renewed {
		if x.reclaimed[seq] {
			return fmt.Errorf("the lease of %d was renewed, and was taken back", seq)
		}
	}
	return nil
}

// limit has setup allow one request now, and the next in a minute.
func (w *world) limit() {
	w.exec("UPDATE postlane.subscriptions SET rate_limit = 1, rate_per_s = 60")
	w.exec("INSERT INTO postlane.paces (subscription_id, interval_us, next_at) VALUES ($1, 60000000, $2)", w.sub, noon)
}

// fail has setup open the breaker, of which a probe is due.
func (w *world) fail() {
	w.exec("UPDATE postlane.subscriptions SET failing = true")
	w.exec("INSERT INTO postlane.breakers (subscription_id, failures, open_since, probe_at, pause_ms) VALUES ($1, 10, $2, $2, 5000)", w.sub, noon)
}

// operate tolerates what an operator may be told.
func (x *actor) operate(err error) error {
	for _, told := range []error{delivery.ErrInFlight, delivery.ErrNotDead, delivery.ErrNotFound, delivery.ErrNotHeld} {
		if errors.Is(err, told) {
			return nil
		}
	}
	return err
}

func (x *actor) discard(n int) error {
	return x.operate(x.own().Discard(x.ctx, x.sub, delivery.ID(x.seqs[n]), "x"))
}

func (x *actor) revive(n int) error {
	return x.operate(x.own().Revive(x.ctx, x.sub, delivery.ID(x.seqs[n])))
}

func (x *actor) enqueues(asset string) error {
	_, err := enqueue(x.ctx, x.session.Pool, asset)
	return err
}

// faults are what must never be seen in the database, by anybody.
const faults = "SELECT string_agg(f.text, '; ') FROM (" + ofStreams + " UNION ALL " + ofReplays + ") f"

const ofStreams = `
	SELECT 'a stream has ' || count(*) || ' leases' AS text FROM postlane.leases l
	GROUP BY l.subscription_id, coalesce(l.asset, '') HAVING count(*) > 1
	UNION ALL
	SELECT 'the lease of ' || l.seq || ' is of no delivery' FROM postlane.leases l
	WHERE NOT EXISTS (SELECT FROM postlane.deliveries d WHERE d.subscription_id = l.subscription_id AND d.seq = l.seq)
	UNION ALL
	SELECT 'a subscription does not know whether it has a breaker' FROM postlane.subscriptions s
	WHERE s.failing <> EXISTS (SELECT FROM postlane.breakers b WHERE b.subscription_id = s.id)
	UNION ALL
	SELECT d.seq || ' is settled and waits' FROM postlane.deliveries d
	WHERE EXISTS (SELECT FROM postlane.settled s WHERE s.subscription_id = d.subscription_id AND s.seq = d.seq)
	UNION ALL
	SELECT e.seq || ' is lost' FROM postlane.events e
	WHERE NOT EXISTS (SELECT FROM postlane.deliveries d WHERE d.seq = e.seq) AND NOT EXISTS (SELECT FROM postlane.settled s WHERE s.seq = e.seq)
	UNION ALL
	SELECT s.seq || ' is settled as ' || s.state || ' and was delivered' FROM postlane.settled s
	WHERE s.state = 'discarded' AND EXISTS (SELECT FROM postlane.attempts a WHERE a.seq = s.seq AND a.outcome = 'delivered' AND a.status = 200 AND s.reason = 'x')
	UNION ALL
	SELECT h.seq || ' is the first of its stream, and nothing will wake it' FROM (
		SELECT DISTINCT ON (d.subscription_id, coalesce(d.asset, '')) d.* FROM postlane.deliveries d
		ORDER BY d.subscription_id, coalesce(d.asset, ''), d.seq) h
	WHERE h.ready IS NULL AND h.due_at IS NULL AND h.held_at IS NULL
	  AND NOT EXISTS (SELECT FROM postlane.leases l WHERE l.subscription_id = h.subscription_id AND coalesce(l.asset, '') = coalesce(h.asset, ''))`

// check looks at what is committed, and in the end whether all of it can be delivered.
func (w *world) check(ended bool) error {
	var found *string
	if err := w.observer.QueryRow(w.ctx, faults, w.seqs).Scan(&found); err != nil {
		return err
	}
	if found != nil {
		return errors.New(*found)
	}
	if !ended {
		return nil
	}
	// What a limit, a breaker or a pause makes wait is to be reached now, and what waits for
	// a deleted subscription to be given up.
	w.exec("UPDATE postlane.subscriptions SET rate_limit = NULL, rate_per_s = NULL, failing = false, state = CASE state WHEN 'paused' THEN 'active' ELSE state END; DELETE FROM postlane.paces; DELETE FROM postlane.breakers")
	if _, err := dbgen.New().DeliveryDiscardDeleted(w.ctx, w.pool, &dbgen.DeliveryDiscardDeletedParams{Max: 10}); err != nil {
		return err
	}
	late := w.storeOn(w.pool, func() time.Time { return noon.Add(24 * time.Hour) })
	if _, err := late.Reclaim(w.ctx, 10); err != nil {
		return err
	}
	if _, _, err := late.Ripen(w.ctx, 10); err != nil {
		return err
	}
	last := map[string]int64{}
	for {
		claims, err := late.Claim(w.ctx, request(0))
		if err != nil {
			return err
		}
		if len(claims) == 0 {
			break
		}
		for _, c := range claims {
			if c.Seq <= last[c.Asset] {
				return fmt.Errorf("%d comes after %d", c.Seq, last[c.Asset])
			}
			last[c.Asset] = c.Seq
		}
		if _, err := late.Settle(w.ctx, results(claims, delivery.Result{Verdict: delivery.Succeeded})); err != nil {
			return err
		}
	}
	var left int
	err := w.observer.QueryRow(w.ctx, `SELECT count(*) FROM postlane.deliveries d WHERE NOT EXISTS (
		SELECT FROM postlane.deliveries h WHERE h.subscription_id = d.subscription_id AND h.asset IS NOT DISTINCT FROM d.asset AND h.held_at IS NOT NULL)`).Scan(&left)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d deliveries can't be reached", left)
	}
	return err
}
