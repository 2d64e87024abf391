package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/keys"
)

// DatabaseHeader is by which a request with the operator's key of the environment names
// one of several databases.
const DatabaseHeader = "Postlane-Database"

// Database is one of several behind one address.
type Database struct {
	// Name is what DatabaseHeader says.
	Name string
	// API is its handler, of New.
	API   http.Handler
	Store *delivery.Store
}

// databases hands each request to the API of one database.
type databases struct {
	list    []Database
	locator *keys.Locator
	log     *slog.Logger
}

// Databases returns the handler of several databases, which hands each request, whole, to
// the one that it is about: that which holds its key. The operator's key of the
// environment is in none of them, so its requests name a subscription in their path, or
// the database by DatabaseHeader. The locator's stores are in the order of the list.
func Databases(list []Database, locator *keys.Locator, log *slog.Logger) http.Handler {
	return &databases{list, locator, log}
}

func (d *databases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i, p := d.find(r)
	if p != nil {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		p.write(w)
		return
	}
	d.list[i].API.ServeHTTP(w, r)
}

// find returns whose a request is. What is nobody's is for the first to refuse.
func (d *databases) find(r *http.Request) (int, *Problem) {
	text := bearer(r)
	if text == "" {
		return 0, nil
	}
	i, err := d.locator.Find(r.Context(), r.RemoteAddr, text)
	switch {
	case err == nil && i == keys.Everywhere:
		return d.named(r)
	case errors.Is(err, keys.ErrUnknown), errors.As(err, new(*keys.TooManyError)):
		return 0, nil
	case err != nil:
		d.log.Error("a key could not be looked up in every database", "error", err)
		return 0, unavailable.problem("The key may be in a database that does not answer.").with("Retry-After", "1").because(err)
	}
	return i, nil
}

// named returns the database that an operator's request is about.
func (d *databases) named(r *http.Request) (int, *Problem) {
	if name := r.Header.Get(DatabaseHeader); name != "" {
		for i := range d.list {
			if d.list[i].Name == name {
				return i, nil
			}
		}
		return 0, invalid.at("header."+DatabaseHeader, "names no database of this server; there are "+d.names())
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	if !ok {
		return 0, nil // the same of any
	}
	rest, ok = strings.CutPrefix(rest, "subscriptions/")
	if !ok {
		return 0, invalid.at("header."+DatabaseHeader, "is missing: the operator's key opens all databases of this server, which are "+d.names())
	}
	text, _, _ := strings.Cut(rest, "/")
	id, err := delivery.ParseSubscriptionID(text)
	if err != nil {
		return 0, nil //nolint:nilerr // for its API to refuse
	}
	i, err := d.holder(r.Context(), id)
	if err != nil {
		d.log.Error("a subscription could not be looked up in every database", "error", err)
		return 0, unavailable.problem("The subscription may be in a database that does not answer.").with("Retry-After", "1").because(err)
	}
	return i, nil
}

// holder returns the database of a subscription, or the first if none has it.
func (d *databases) holder(ctx context.Context, id delivery.SubscriptionID) (int, error) {
	errs := make([]error, len(d.list))
	var lookups sync.WaitGroup
	for i := range d.list {
		lookups.Go(func() { _, errs[i] = d.list[i].Store.Subscription(ctx, id) })
	}
	lookups.Wait()
	var away error
	for i, err := range errs {
		switch {
		case err == nil:
			return i, nil
		case !errors.Is(err, delivery.ErrNotFound):
			away = errors.Join(away, fmt.Errorf("%s: %w", d.list[i].Name, err))
		}
	}
	return 0, away
}

func (d *databases) names() string {
	names := make([]string, len(d.list))
	for i := range d.list {
		names[i] = d.list[i].Name
	}
	return strings.Join(names, ", ")
}
