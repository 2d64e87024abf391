package verify

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// Handler returns middleware that calls next for what is verified and was not handled
// before, with the delivery in the request's context (From) and the body as it came.
//
// next has handled the event if its status is 2xx (no status is 200); the event is then
// never passed on again. Any other status, and a panic, leave it open: the sender tries
// again, and so does next.
func (v *Verifier) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := v.Read(r)
		if err != nil {
			v.config.OnError(w, r, err)
			return
		}
		known, err := v.config.Store.Begin(r.Context(), d)
		switch {
		case err != nil:
			v.config.OnError(w, r, fmt.Errorf("%w: %w", ErrUnavailable, err))
			return
		case known.State == Handled:
			w.WriteHeader(http.StatusOK)
			return
		case known.State == Handling:
			v.config.OnError(w, r, ErrHandling)
			return
		}
		d.Order = orderOf(d, known.Last)
		r = r.WithContext(context.WithValue(r.Context(), contextKey{}, d))
		r.Body = io.NopCloser(bytes.NewReader(d.Body))
		answer := &answer{ResponseWriter: w, end: func(handled bool) { v.end(r.Context(), d, handled) }}
		defer answer.settle(http.StatusInternalServerError) // where next panics
		next.ServeHTTP(answer, r)
		answer.settle(http.StatusOK)
	})
}

// end outlives the request: the sender may have hung up, and the work is done.
func (v *Verifier) end(ctx context.Context, d *Delivery, handled bool) {
	if err := v.config.Store.End(context.WithoutCancel(ctx), d, handled); err != nil {
		v.config.Logger.Error("verify: could not note what came of an event; it may be handled again", "event", d.ID, "handled", handled, "error", err)
	}
}

// answer ends an event with its status, before the sender can see that: its next
// delivery of the stream may follow at once.
type answer struct {
	http.ResponseWriter

	end   func(handled bool)
	ended bool
}

func (a *answer) settle(status int) {
	if !a.ended {
		a.ended = true
		a.end(status >= 200 && status <= 299)
	}
}

func (a *answer) WriteHeader(status int) {
	if status >= 200 { // 1xx announce another
		a.settle(status)
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.settle(http.StatusOK)
	return a.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
