package postlanetest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/postlanetest"
	"github.com/postlane-go/postlane/verify"
)

// payInvoice is the code under test.
func payInvoice(ctx context.Context, tx pgx.Tx, id string) error {
	// … and what it changes in the application's own tables.
	_, err := delivery.Enqueue(ctx, tx, delivery.Event{
		Tenant: "acme", Type: "invoice.paid", Asset: id, Payload: fmt.Appendf(nil, `{"id": %q}`, id),
	})
	return err
}

// What a transaction enqueued is looked at inside it, which need never commit.
func ExampleExpectEvents() {
	t, pool, end := exampleTest()
	defer end()

	tx, err := pool.Begin(t.Context())
	check(err)
	defer tx.Rollback(t.Context())
	check(payInvoice(t.Context(), tx, "in_1"))

	postlanetest.ExpectEvents(t, tx, delivery.Event{
		Tenant: "acme", Type: "invoice.paid", Asset: "in_1", Payload: []byte(`{"id":"in_1"}`),
	})
	postlanetest.ExpectEvents(t, tx, delivery.Event{Asset: "in_2"}) // fails: what is said differs
	// Output:
	// the transaction has enqueued 1, not as expected:
	// 	event 0: Asset is "in_1", want "in_2"
}

// An endpoint that is down at first gets the event when it is back, hours later by the
// clock of the test.
func ExampleDeliver() {
	t, pool, end := exampleTest()
	defer end()

	clock := postlanetest.NewClock(time.Now())
	store := postlanetest.NewStore(t, pool, clock)
	receiver := postlanetest.NewReceiver(t)
	receiver.Subscribe(store, "acme", "invoice.*")
	receiver.Answer(func(d *verify.Delivery) int {
		if d.Attempt < 4 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})

	check(pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return payInvoice(t.Context(), tx, "in_1")
	}))
	for range 4 {
		postlanetest.Deliver(t, delivery.Config{Store: store})
		clock.Advance(3 * time.Hour)
	}
	for _, d := range receiver.Requests() {
		fmt.Println(d.Attempt, d.EventType, string(d.Body))
	}
	// Output:
	// 1 invoice.paid {"id": "in_1"}
	// 2 invoice.paid {"id": "in_1"}
	// 3 invoice.paid {"id": "in_1"}
	// 4 invoice.paid {"id": "in_1"}
}

// exampleT stands in for the t of a test, which an example does not have: what a test
// would fail with, it prints.
type exampleT struct {
	testing.TB

	cleanup []func()
}

func (t *exampleT) Helper()                  {}
func (t *exampleT) Name() string             { return "Example" }
func (t *exampleT) Failed() bool             { return false }
func (t *exampleT) Context() context.Context { return context.Background() }
func (t *exampleT) Output() io.Writer        { return os.Stderr }
func (t *exampleT) Cleanup(f func())         { t.cleanup = append(t.cleanup, f) }
func (t *exampleT) Errorf(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
}
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *exampleT) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }

func exampleTest() (t *exampleT, pool *pgxpool.Pool, end func()) {
	t = &exampleT{}
	return t, pgtest.New(t), func() {
		for len(t.cleanup) > 0 {
			last := len(t.cleanup) - 1
			f := t.cleanup[last]
			t.cleanup = t.cleanup[:last]
			f()
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
