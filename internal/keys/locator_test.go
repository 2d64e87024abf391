package keys_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func TestLocator(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	const operator, from = "the operator's key of these tests", "192.0.2.1:99"
	stores := []*keys.Store{keys.New(pgtest.New(t), operator), keys.New(pgtest.New(t), operator)}
	var texts []string
	for i, s := range stores {
		_, text, err := s.Create(ctx, "shop", fmt.Sprint("tenant-", i), keys.Read)
		is.NoErr(err)
		texts = append(texts, text)
	}
	l := keys.NewLocator(stores)
	at, err := l.Find(ctx, from, operator)
	is.NoErr(err)
	is.Equal(at, keys.Everywhere)
	for range 2 { // searched, and remembered
		for i, text := range texts {
			at, err := l.Find(ctx, from, text)
			is.NoErr(err)
			is.Equal(at, i)
		}
	}
	_, err = l.Find(ctx, from, "nonsense")
	is.True(errors.Is(err, keys.ErrUnknown))

	// Keys that look like some, and are none, are searched for a few times and no more.
	other, err := pgxpool.New(ctx, pgtest.URL(t))
	is.NoErr(err)
	defer other.Close()
	_, foreign, err := keys.New(other, "").Create(ctx, "foreign", "x", keys.Read)
	is.NoErr(err)
	for range keys.WrongKeys {
		_, err = l.Find(ctx, from, foreign)
		is.True(errors.Is(err, keys.ErrUnknown))
	}
	_, err = l.Find(ctx, from, foreign)
	is.True(errors.As(err, new(*keys.TooManyError)))
	_, err = l.Find(ctx, from, texts[1])
	is.NoErr(err)

	// While a database is away, a key that no other has may be there.
	away, err := pgxpool.New(ctx, "postgres://nobody@127.0.0.1:1/away")
	is.NoErr(err)
	defer away.Close()
	l = keys.NewLocator([]*keys.Store{keys.New(away, ""), stores[1]})
	at, err = l.Find(ctx, from, texts[1])
	is.NoErr(err)
	is.Equal(at, 1)
	_, err = l.Find(ctx, from, foreign)
	is.True(err != nil && !errors.Is(err, keys.ErrUnknown))
}
